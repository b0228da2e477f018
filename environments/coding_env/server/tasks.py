"""The tasks that come with the environment: a prompt, hidden tests, a solution, and wrong ones that must not pass."""

from __future__ import annotations

import functools
import random
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coding_env.server.hidden_tests import split_tests, why_unusable
from openenv_trl.errors import ConfigurationError

LEVELS = ("warm-up", "easy", "medium")


class CodingTask(BaseModel):
    """One exercise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    """Its name, which never changes."""
    level: Literal["warm-up", "easy", "medium"]
    """How hard it is."""
    prompt: str
    """What is asked for."""
    tests: list[str] = Field(min_length=1)
    """The hidden tests: each is Python code with the solution's names in reach, and passes if nothing is raised."""
    solution: str = ""
    """A module that passes all tests."""
    mutants: list[str] = []
    """Modules that are nearly right: each fails a test at least."""


@functools.cache
def built_in_tasks() -> dict[str, CodingTask]:
    """Return the tasks by their ids."""
    found: dict[str, CodingTask] = {}
    for entry in sorted(resources.files("coding_env").joinpath("tasks").iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".yaml"):
            task = CodingTask.model_validate(yaml.safe_load(entry.read_text("utf-8")))
            found[task.id] = task
    return found


def find_task(task_id: str, seed: int) -> CodingTask:
    """Return a task by its id; ``"random"`` or ``"random:easy"`` for one that the seed picks.

    Raises:
        ConfigurationError: There is no such task.
    """
    tasks = built_in_tasks()
    if task_id in tasks:
        return tasks[task_id]
    kind, _, level = task_id.partition(":")
    if kind == "random" and (not level or level in LEVELS):
        choice = [task for task in tasks.values() if not level or task.level == level]
        return random.Random(seed).choice(choice)
    raise ConfigurationError(
        f"There is no task {task_id!r}. Give 'random', 'random:LEVEL' with one of {', '.join(LEVELS)}, or one of: "
        f"{', '.join(tasks)}."
    )


def own_task(prompt: str, tests: str | list[str] | None) -> CodingTask:
    """Return the task that a caller of reset describes.

    Args:
        prompt: What is asked for.
        tests: The tests' sources. A single text is one test for each ``test_…`` function or method that it defines,
            all with the rest of the text; without such functions it is one test.

    Raises:
        ConfigurationError: There are no tests, they are no texts, or one would pass or fail whatever the solution is.
    """
    given = split_tests(tests) if isinstance(tests, str) else tests
    try:
        task = CodingTask(id="", level="easy", prompt=prompt, tests=given or [])
    except ValidationError as error:
        raise ConfigurationError(
            "prompt needs tests: a list of texts of Python code, each a test, or one text with test_… functions. "
            f"{error.errors()[0]['msg']}."
        ) from error
    judging: list[str] = []
    for number, test in enumerate(task.tests, 1):
        why = why_unusable(test)
        # A text of classes alone does nothing by itself, and each of their methods is a test.
        parts = split_tests(test) if why.startswith("checks nothing") else [test]
        for part in parts:
            why = why_unusable(part)
            if why:
                raise ConfigurationError(
                    f"Test {number} of {len(task.tests)} {why}. It would judge nothing; it begins: {test[:80]!r}."
                )
        judging += parts
    return task.model_copy(update={"tests": judging})
