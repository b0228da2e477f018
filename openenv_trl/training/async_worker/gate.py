"""When a group of episodes may begin, and whether what it brought may still be handed over.

Invariants, whatever happens in whatever order:

- rows in flight and rows in the buffer together never exceed the buffer's size, so handing over never waits;
- no group is handed over whose oldest token was sampled more than ``max_staleness`` versions ago;
- while nothing is in flight and the buffer is empty a group may begin, so a waiting trainer is never left waiting.

It owns no task, no clock and no lock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from openenv_trl.training.async_worker.settings import AsyncRolloutSettings


class Hold(str, Enum):
    """Why no group begins now."""

    INFLIGHT = "inflight"
    """As many episodes are played as are allowed."""
    BUFFER = "buffer"
    """Their rows would find no place: the trainer is behind."""
    STALENESS = "staleness"
    """They would be too old when their turn comes: the trainer is behind."""


class Loss(str, Enum):
    """Why a group was not handed over."""

    STALE = "stale"
    """Its weights had become too old, before or after it was finished."""
    UNSOUND = "unsound"
    """Too few of its episodes have a reward."""
    EQUAL = "equal"
    """All rewards were equal, and such groups are not wanted."""


@dataclass
class _Group:
    version: int
    rows: int


class GroupGate:
    """Counts groups, rows and versions.

    Args:
        settings: Sizes and the staleness that is allowed.
    """

    def __init__(self, settings: AsyncRolloutSettings) -> None:
        self._settings = settings
        self._inflight: dict[int, _Group] = {}
        self._taken_of_version = 0
        self.version = 0
        """The weights' version; 0 before the first."""
        self.handed_over = 0
        """Groups handed over."""
        self.lost: Counter[Loss] = Counter()
        """Groups that were not, by reason."""
        self.lost_in_a_row = 0
        """Unsound or unwanted groups since the last that was handed over."""

    @property
    def inflight(self) -> tuple[int, ...]:
        """The groups that are played."""
        return tuple(self._inflight)

    @property
    def oldest_allowed(self) -> int:
        """The oldest version whose rows may be handed over now."""
        return self.version - self._settings.max_staleness

    def hold(self, buffered: int) -> Hold | None:
        """Why no group may begin now; None where one may.

        Args:
            buffered: Rows in the buffer.
        """
        size, settings = self._settings.group_size, self._settings
        inflight = sum(group.rows for group in self._inflight.values())
        if not inflight and not buffered:
            return None
        if inflight and inflight + size > settings.max_inflight_episodes:
            return Hold.INFLIGHT
        if buffered + inflight + size > settings.max_buffered_rows:
            return Hold.BUFFER
        if settings.rows_per_version is not None:
            # The last row of the group is trained on after all that are before it.
            ahead = self._taken_of_version + buffered + inflight + size - 1
            if ahead // settings.rows_per_version > settings.max_staleness:
                return Hold.STALENESS
        return None

    def begin(self, group: int) -> None:
        """A group begins, with the present weights."""
        self._inflight[group] = _Group(self.version, self._settings.group_size)

    def weights_changed(self, version: int) -> tuple[int, ...]:
        """There are new weights: which groups in flight are now too old to be worth finishing."""
        if version != self.version:
            self._taken_of_version = 0
        self.version = version
        return tuple(key for key, group in self._inflight.items() if group.version < self.oldest_allowed)

    def rows_taken(self, count: int) -> None:
        """The trainer has taken rows out of the buffer."""
        self._taken_of_version += count

    def finish(self, group: int, oldest_version: int | None, rows: int, loss: Loss | None = None) -> Loss | None:
        """A group in flight is finished.

        Args:
            group: Which.
            oldest_version: The oldest version that sampled one of its tokens; None where that is not known, which
                counts as the version that it began with.
            rows: Rows that it brought.
            loss: Why it is not to be handed over, where something else than its age is the reason.

        Returns:
            None: hand it over. Otherwise why it must not be.
        """
        begun = self._inflight.pop(group)
        version = begun.version if oldest_version is None else oldest_version
        if loss is None and version < self.oldest_allowed:
            loss = Loss.STALE
        if loss is None:
            self.handed_over += 1
            self.lost_in_a_row = 0
            return None
        self.lost[loss] += 1
        if loss is not Loss.STALE:
            self.lost_in_a_row += 1
        return loss

    def overtaken(self, group: int) -> None:
        """A group in flight was given up, because `weights_changed` named it."""
        self._inflight.pop(group)
        self.lost[Loss.STALE] += 1

    def stop(self) -> None:
        """The worker ends: what is in flight comes to nothing, and is no loss."""
        self._inflight.clear()
