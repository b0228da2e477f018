"""From the prompts of a generation batch to tasks: which rows form a group, and what a group shares.

TRL repeats each prompt ``num_generations`` times in a row, across processes: row ``i`` of process ``r`` is row
``r * len(prompts) + i`` of the whole batch, and its group is that number divided by ``num_generations``. The seeds
below depend on those numbers and the run's seed only, so every process derives the same ones for a group that it
shares with another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Task
from openenv_trl.rollout.seeds import derive_seed
from openenv_trl.training.columns import attach_columns, detach_columns
from openenv_trl.training.curriculum_settings import CurriculumLevel
from openenv_trl.training.environments import ALONE, ENVIRONMENT_COLUMN

ChooseLevel = Callable[[str, float], "CurriculumLevel | None"]
"""Given an environment's name and a number drawn from 0 to 1, the level that a prompt is played at."""


class SharedRandomness(str, Enum):
    """What the generations of one prompt have in common, besides the prompt."""

    EPISODE = "episode"
    """All of it: every generation gets the same ``seed``. Works with every environment that honours seeds."""
    TASK = "task"
    """The task only: the same ``task_seed``, and a ``seed`` of its own for all later randomness. The
    environment's ``reset`` must take ``task_seed``. Where luck after the start is large (cards still to be dealt),
    this keeps groups comparable and still lets their rewards differ."""
    NONE = "none"
    """Nothing: every generation gets a ``seed`` of its own, and so a task of its own, unless other columns fix it."""


def tasks_from_rows(rows: Any, count: int, *, seeds: tuple[object, ...], keep_seeds: bool = False) -> list[Task]:
    """Tasks from a data set's rows in turn, each with a seed of its own: for evaluations and warm starts.

    Args:
        rows: A data set, or a list of rows, each with a ``prompt`` (a string or messages). The other columns go to
            ``reset``.
        count: How many tasks; rows are used again where there are fewer.
        seeds: What the seeds are derived from, beside the task's number.
        keep_seeds: Whether a row's own ``seed`` stays. A row that is used again gets a derived one.

    Raises:
        ConfigurationError: There are no rows, or one has no prompt.
    """
    chosen = attach_columns([dict(rows[i]) for i in range(min(len(rows), count))])["prompt"]
    tasks: list[Task] = []
    for index in range(count):
        messages, columns = detach_columns(chosen[index % len(chosen)])
        reset = dict(columns or {})
        if not (keep_seeds and index < len(chosen) and reset.get("seed") is not None):
            reset["seed"] = derive_seed(*seeds, index)
        tasks.append(Task(prompt=messages, reset=reset, index=index))
    return tasks


def tasks_from_prompts(
    prompts: Sequence[Sequence[Mapping[str, Any]]],
    *,
    group_size: int,
    shared: SharedRandomness,
    run_seed: int,
    batch: str,
    process_index: int = 0,
    columns_expected: bool = False,
    environments: Collection[str] = (ALONE,),
    level_for: ChooseLevel | None = None,
) -> list[Task]:
    """The tasks of one generation batch, one a prompt, in order.

    A task's ``metadata`` has the name of its ``environment``, where there are several, and its curriculum's ``level``.

    Args:
        prompts: This process's prompts, each already repeated for its group.
        group_size: Generations a prompt.
        shared: What the generations of a prompt share.
        run_seed: The run's own seed.
        batch: Names the batch within the run; it decides each generation's own luck.
        process_index: This process's rank.
        columns_expected: Whether the dataset has columns beside the prompt, so that prompts without any are a mistake.
        environments: The environments' names. Where there are several, the column ``environment`` names a row's.
        level_for: The curriculum: the level of a prompt, all of whose generations are played at it.

    Raises:
        ConfigurationError: Columns are expected and a prompt carries none, or a row names no environment of these.
    """
    tasks: list[Task] = []
    for index, prompt in enumerate(prompts):
        messages, columns = detach_columns(prompt)
        if columns is None and columns_expected:
            raise ConfigurationError(
                "The dataset has columns beside 'prompt' that its prompts do not carry: they would not reach reset(). "
                "Give the trainer train_dataset=rollout.prepare_dataset(dataset), or attach_columns(dataset)."
            )
        row = process_index * len(prompts) + index
        group = row // group_size
        values = dict(columns or {})
        name = _take_environment(values, environments)
        draw = derive_seed("level", run_seed, batch, group) / (1 << 53)
        level = None if level_for is None else level_for(name, draw)
        if level is not None:
            values |= level.reset
        tasks.append(
            Task(
                prompt=messages,
                reset=_reset_arguments(values, shared, run_seed, batch, group, row),
                group=None if shared is SharedRandomness.NONE else f"{batch}:{group}",
                index=row % group_size,
                metadata=({} if name == ALONE else {"environment": name})
                | ({} if level is None else {"level": level.name}),
            )
        )
    return tasks


def environment_of(task: Task) -> str:
    """The name of the task's environment; "" where there is one only."""
    return str(task.metadata.get("environment", ALONE))


def check_environment(name: Any, environments: Collection[str]) -> str:
    """The name that a row gives of its environment.

    Raises:
        ConfigurationError: There is no such environment.
    """
    if name in environments:
        return str(name)
    known = ", ".join(repr(each) for each in environments)
    what = "names no environment" if name is None else f"names the environment {name!r}, which is not there"
    raise ConfigurationError(
        f"A row of the dataset {what}: its column '{ENVIRONMENT_COLUMN}' must be one of {known} (mix_datasets writes "
        "it)."
    )


def _take_environment(columns: dict[str, Any], environments: Collection[str]) -> str:
    """The environment's name, taken out of the columns where it is not one for ``reset``."""
    if ALONE in environments:
        return ALONE
    return check_environment(columns.pop(ENVIRONMENT_COLUMN, None), environments)


def _reset_arguments(
    columns: dict[str, Any], shared: SharedRandomness, run_seed: int, batch: str, group: int, row: int
) -> dict[str, Any]:
    """The row's columns with the seeds in place.

    A ``seed`` column names the task (under `SharedRandomness.TASK` a ``task_seed`` column does, where there is one);
    without one the group does.
    """
    named = columns.get("seed")
    if shared is SharedRandomness.TASK and columns.get("task_seed") is not None:
        named = columns["task_seed"]
    task_seed = derive_seed("task", run_seed, batch, group) if named is None else named
    own_seed = derive_seed("luck", run_seed, batch, row)
    if shared is SharedRandomness.EPISODE:
        return {**columns, "seed": task_seed}
    if shared is SharedRandomness.TASK:
        return {**columns, "task_seed": task_seed, "seed": own_seed}
    return {**columns, "seed": own_seed}
