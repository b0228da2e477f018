"""Which prompt each group plays: the dataset's rows, again and again, in an order that a seed decides.

Group ``n`` is always the same row with the same luck, so a run that is resumed at ``n`` goes on as it would have.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Task
from openenv_trl.training.async_worker.settings import AsyncRolloutSettings
from openenv_trl.training.columns import attach_columns
from openenv_trl.training.tasks import derive_seed, tasks_from_prompts

_NOT_A_COLUMN = ("prompt", "completion", "completion_ids")


@dataclass(frozen=True)
class GroupTasks:
    """A group to play.

    Attributes:
        number: The group's number in the run.
        tasks: One an episode.
        columns: The row's columns beside the prompt, as reward functions get them.
    """

    number: int
    tasks: list[Task]
    columns: dict[str, Any]


class PromptSource:
    """Groups without end, from a dataset.

    Args:
        dataset: A ``datasets.Dataset`` or ``IterableDataset`` with a ``prompt`` column, or a list of rows.
        settings: Group size, order and seeds.
        columns: The columns that go to ``reset``; all if None.

    Raises:
        ConfigurationError: The dataset cannot be one: see `attach_columns`.
    """

    def __init__(self, dataset: Any, settings: AsyncRolloutSettings, *, columns: Sequence[str] | None = None) -> None:
        self._rows = attach_columns(dataset, columns=columns)
        self._settings = settings
        self._sized = hasattr(self._rows, "__len__")
        self._next = settings.first_group
        self._order: tuple[int, list[int]] = (-1, [])
        self._stream: Iterator[Any] | None = None

    @property
    def next_number(self) -> int:
        """The number of the next group."""
        return self._next

    def next_group(self) -> GroupTasks:
        """The next group to play.

        Raises:
            ConfigurationError: The stream has no rows, or a row cannot be played.
        """
        number = self._next
        row = self._rows[self._index(number)] if self._sized else self._from_stream(number)
        tasks = tasks_from_prompts(
            [row["prompt"]] * self._settings.group_size,
            group_size=self._settings.group_size,
            shared=self._settings.shared_randomness,
            run_seed=self._settings.seed,
            batch=f"async_{number:08d}",
        )
        self._next += 1
        return GroupTasks(number, tasks, {name: row[name] for name in row if name not in _NOT_A_COLUMN})

    def _index(self, number: int) -> int:
        epoch, place = divmod(number, len(self._rows))
        if not self._settings.shuffle:
            return place
        if self._order[0] != epoch:
            order = list(range(len(self._rows)))
            random.Random(derive_seed("order", self._settings.seed, epoch)).shuffle(order)
            self._order = (epoch, order)
        return self._order[1][place]

    def _from_stream(self, number: int) -> Any:
        if self._stream is None:  # a resumed run skips what it has played
            self._stream = itertools.islice(iter(self._rows), number, None)
        row = next(self._stream, None)
        if row is None:
            self._stream = iter(self._rows)
            row = next(self._stream, None)
        if row is None:
            raise ConfigurationError("The dataset's stream is empty: give at least one row with a prompt.")
        return row
