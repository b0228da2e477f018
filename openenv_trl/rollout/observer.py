"""The seam for watching a run: the engine tells what happens, and takes nothing back.

The calls come from the engine's event loop, several for each turn of each episode: what listens must be quick, must not
block, and must not raise.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Protocol

import anyio

from openenv_trl.rollout.trajectory import Trajectory, Turn


class Phase(str, Enum):
    """What an episode is doing."""

    WAITING = "waiting"
    """For its turn, for a session, or to be tried again."""
    RESET = "reset"
    """The environment begins an episode."""
    GENERATING = "generating"
    """The model writes, or the episode waits for its batch."""
    STEPPING = "stepping"
    """The environment acts."""
    DONE = "done"
    """Played to an end."""
    FAILED = "failed"
    """Ended by a failure."""

    @property
    def is_end(self) -> bool:
        """Whether the episode is over."""
        return self in (Phase.DONE, Phase.FAILED)


class RolloutObserver(Protocol):
    """Hears what the episodes of a run do.

    ``index`` is the place of the episode's task in the run; ``now`` are seconds on the run's monotonic clock. Runs may
    follow one another, and do not overlap.
    """

    def run_started(self, episodes: int, now: float) -> None:
        """A run of so many episodes begins; all of them wait."""
        ...

    def episode_started(self, index: int, now: float) -> None:
        """An episode's turn has come: from now on its seconds count."""
        ...

    def phase_changed(self, index: int, phase: Phase, now: float) -> None:
        """An episode goes on to another phase; the same one again is no change."""
        ...

    def turn_ended(self, index: int, turn: Turn, now: float) -> None:
        """A message of the model has been answered, or has ended the episode."""
        ...

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None:
        """An episode is over; its end reason says whether it was played or failed."""
        ...

    def run_ended(self, now: float) -> None:
        """The run is over, also where it was cancelled or raised."""
        ...


class Observers:
    """Several observers as one.

    Args:
        observers: Who hears each event, in this order.
    """

    def __init__(self, observers: Sequence[RolloutObserver]) -> None:
        self._observers = tuple(observers)

    def run_started(self, episodes: int, now: float) -> None:
        """Told to each."""
        for observer in self._observers:
            observer.run_started(episodes, now)

    def episode_started(self, index: int, now: float) -> None:
        """Told to each."""
        for observer in self._observers:
            observer.episode_started(index, now)

    def phase_changed(self, index: int, phase: Phase, now: float) -> None:
        """Told to each."""
        for observer in self._observers:
            observer.phase_changed(index, phase, now)

    def turn_ended(self, index: int, turn: Turn, now: float) -> None:
        """Told to each."""
        for observer in self._observers:
            observer.turn_ended(index, turn, now)

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None:
        """Told to each."""
        for observer in self._observers:
            observer.episode_finished(index, trajectory, now)

    def run_ended(self, now: float) -> None:
        """Told to each."""
        for observer in self._observers:
            observer.run_ended(now)


@contextmanager
def observed(observer: RolloutObserver | None, episodes: int) -> Generator[None]:
    """For the block, a run of so many episodes."""
    if observer is None:
        yield
        return
    observer.run_started(episodes, anyio.current_time())
    try:
        yield
    finally:
        observer.run_ended(anyio.current_time())
