"""An observer's view of a part of a run: one environment's episodes, among those of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from openenv_trl.rollout.observer import Phase, RolloutObserver
from openenv_trl.rollout.trajectory import Trajectory, Turn


class ObservedPart:
    """Passes on what the episodes of one engine do, under their places in the whole run.

    Args:
        observer: Of the whole run; it is told of the run's start and end by its owner, not by a part.
        rows: The place in the whole run of each of the part's episodes.
        further: Gives a place to each episode beyond those (over-sampled, or in place of a failed one): numbers that
            no other episode of the whole run has.
    """

    def __init__(self, observer: RolloutObserver, rows: Sequence[int], further: Iterator[int]) -> None:
        self._observer = observer
        self._places = dict(enumerate(rows))
        self._further = further

    def run_started(self, episodes: int, now: float) -> None:
        """Told by the whole run's owner."""

    def episode_started(self, index: int, now: float) -> None:
        """Passed on."""
        self._observer.episode_started(self._place(index), now)

    def phase_changed(self, index: int, phase: Phase, now: float) -> None:
        """Passed on."""
        self._observer.phase_changed(self._place(index), phase, now)

    def turn_ended(self, index: int, turn: Turn, now: float) -> None:
        """Passed on."""
        self._observer.turn_ended(self._place(index), turn, now)

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None:
        """Passed on."""
        self._observer.episode_finished(self._place(index), trajectory, now)

    def run_ended(self, now: float) -> None:
        """Told by the whole run's owner."""

    def _place(self, index: int) -> int:
        place = self._places.get(index)
        if place is None:
            place = self._places[index] = next(self._further)
        return place
