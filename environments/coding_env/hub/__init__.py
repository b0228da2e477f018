"""Tasks for the coding environment out of data sets: from the Hugging Face Hub, from files, or those that come with it.

A data set's rows become rows of one form: the conversation that a model is given, and ``tests`` for the environment's
reset. The common shapes of programming data sets are told apart by their columns; see `SHAPES`.

From the command line, to a file that a YAML experiment names as its ``dataset_name``::

    python -m coding_env.hub openai/openai_humaneval --split test --out humaneval.jsonl
    python -m coding_env.hub --level warm-up --out warm_up.jsonl
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coding_env.hub.limits import TestLimits, within
from coding_env.hub.shapes import SHAPES, Shape, UnusableRowError, shape_of
from coding_env.server.hidden_tests import why_unusable
from coding_env.server.tasks import LEVELS, built_in_tasks
from openenv_trl.errors import ConfigurationError

__all__ = ["SHAPES", "Shape", "TestLimits", "built_in_rows", "load_tasks", "task_rows"]

logger = logging.getLogger(__name__)

INSTRUCTION = "Write Python. Hand the whole solution in with run_tests(code); hidden tests judge it."


def load_tasks(
    name: str,
    *,
    split: str = "train",
    config: str | None = None,
    shape: str | None = None,
    limits: TestLimits | None = None,
    most: int | None = None,
    instruction: str = INSTRUCTION,
) -> list[dict[str, Any]]:
    """Load a data set and make tasks of its rows. Needs ``datasets``: ``pip install "openenv-trl[train]"``.

    Args:
        name: Its name on the Hub, a folder that ``datasets`` can load, or a file: JSON, JSON lines, CSV or Parquet.
        split: Its split; files have none.
        config: Its configuration, where it has several.
        shape: The name of its shape, of `SHAPES`; told by the columns if None.
        limits: Which tests are left out; the defaults if None.
        most: Tasks at most; all if None.
        instruction: Stands before each task in the model's prompt; none where it is empty.

    Raises:
        ConfigurationError: The data set is not there, or its columns have none of the shapes.
    """
    return task_rows(
        _rows_of(name, split, config), shape=shape, limits=limits, most=most, instruction=instruction, what=name
    )


def task_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    shape: str | None = None,
    limits: TestLimits | None = None,
    most: int | None = None,
    instruction: str = INSTRUCTION,
    what: str = "the data set",
) -> list[dict[str, Any]]:
    """Make tasks of rows.

    Args:
        rows: As the data set has them.
        shape: As in `load_tasks`, like the next three.
        limits: Which tests are left out.
        most: Tasks at most.
        instruction: Stands before each task.
        what: What errors call the data set.

    Returns:
        For each row that can be used: ``prompt``, a conversation of one message; ``tests``, for reset; ``source_id``,
        its name in the data set; ``solution``, one that the data set gives, or "". What cannot be used is left out,
        with a warning that counts the reasons.

    Raises:
        ConfigurationError: The columns have none of the shapes, or no row can be used.
    """
    allowed = limits or TestLimits()
    made: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    unusable: Counter[str] = Counter()
    chosen: Shape | None = None
    for number, row in enumerate(rows):
        if most is not None and len(made) >= most:
            break
        chosen = chosen or shape_of(row, shape, what)
        try:
            task = chosen.task(row)
            tests = within(_judging(task.tests, unusable), allowed)
        except UnusableRowError as error:
            dropped[str(error)] += 1
            continue
        words = f"{instruction}\n\n{task.words}" if instruction else task.words
        made.append(
            {
                "prompt": [{"role": "user", "content": words}],
                "tests": tests,
                "source_id": task.name or str(number),
                "solution": task.solution,
            }
        )
    if unusable:
        reasons = "; ".join(f"{count} x it {reason}" for reason, count in unusable.most_common(5))
        logger.warning("%s: %d tests were left out: %s.", what, sum(unusable.values()), reasons)
    if dropped:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in dropped.most_common(5))
        logger.warning("%s: %d rows were left out: %s.", what, sum(dropped.values()), reasons)
    if not made:
        raise ConfigurationError(f"No row of {what} can be used: {dict(dropped) or 'it has none'}.")
    return made


def _judging(tests: Sequence[str], unusable: Counter[str]) -> list[str]:
    """Those tests that can judge; the reasons of the others are counted."""
    kept: list[str] = []
    reasons: Counter[str] = Counter()
    for test in tests:
        why = why_unusable(test).partition(":")[0]
        if why:
            reasons[why] += 1
        else:
            kept.append(test)
    if tests and not kept:
        raise UnusableRowError(f"each of its tests {reasons.most_common(1)[0][0]}")
    unusable.update(reasons)
    return kept


def built_in_rows(levels: Sequence[str] = LEVELS, *, instruction: str = INSTRUCTION) -> list[dict[str, Any]]:
    """The tasks that come with the environment: with ``task_id`` in place of ``tests``.

    The words of a task are what reset shows, so that the prompt has the instruction alone.

    Args:
        levels: Those of these levels: "warm-up", "easy", "medium".
        instruction: The prompt of each.

    Raises:
        ConfigurationError: There is no such level.
    """
    unknown = sorted(set(levels) - set(LEVELS))
    if unknown:
        raise ConfigurationError(f"There is no level {', '.join(map(repr, unknown))}. There are {', '.join(LEVELS)}.")
    tasks = [task for task in built_in_tasks().values() if task.level in levels]
    return [
        {"prompt": [{"role": "user", "content": instruction}], "task_id": task.id}
        for task in sorted(tasks, key=lambda task: (LEVELS.index(task.level), task.id))
    ]


def _rows_of(name: str, split: str, config: str | None) -> Iterable[Mapping[str, Any]]:
    import os

    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ConfigurationError('Data sets need the package datasets: pip install "openenv-trl[train]".') from error
    ending = os.path.splitext(name)[1].lstrip(".")
    kind = {"jsonl": "json", "json": "json", "csv": "csv", "parquet": "parquet"}.get(ending)
    if kind is not None and not os.path.isfile(name):
        raise ConfigurationError(f"There is no file {name!r}.")
    try:
        if kind is not None:
            return load_dataset(kind, data_files=name, split="train")
        return load_dataset(name, config, split=split)
    except Exception as error:  # boundary: datasets raises much, from connections to pandas
        hint = "" if kind else f" Is {name!r} its name on the Hub, and are split={split!r} and config={config!r} right?"
        causes = "; ".join(f"{type(each).__name__}: {_last_line(each)}" for each in _causes(error))
        raise ConfigurationError(f"{name} cannot be loaded: {causes}.{hint}") from error


def _causes(error: BaseException) -> list[BaseException]:
    """An error, and the one that it was raised for: what lies between says no more than that it failed."""
    first = error
    while first.__cause__:
        first = first.__cause__
    return [error] if first is error else [error, first]


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].rstrip(".") if lines else "it says no more"
