"""Where a batch of episodes stands: events in, a view out. No clock, no task, no terminal.

An event costs about a microsecond; all counting is left to `BatchProgress.view`, which is asked a few times a second.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from openenv_trl.rollout.observer import Phase
from openenv_trl.rollout.trajectory import Trajectory, Turn

_FEWEST_FOR_A_GUESS = 8
"""Episodes that must have ended before the time left is guessed: fewer are chance."""


@dataclass(frozen=True)
class SlowEpisode:
    """An episode that is not over.

    Attributes:
        index: Its place in the run.
        phase: What it is doing.
        phase_s: Seconds since it began to.
        episode_s: Seconds since its turn came.
        turns: Messages of the model so far.
    """

    index: int
    phase: Phase
    phase_s: float
    episode_s: float
    turns: int


@dataclass(frozen=True)
class BatchView:
    """Where the batch stands at one moment.

    Attributes:
        episodes: All of the run.
        phases: How many are in each phase; each phase is there.
        elapsed_s: Seconds since the run began.
        turns: Messages of the model so far, those of failed attempts included.
        reward: Mean reward of the episodes that ended with one; None before the first.
        rewarded: How many those are.
        failures: Failed episodes by their end reason.
        slowest: Of those not over, the ones whose turn came longest ago; the slowest first.
        slowest_phase: The phase that most of the episodes' time went to so far; None before any did.
        slowest_phase_share: Its share of their time, from 0 to 1.
        remaining_s: Seconds left, at the rate so far; None where that would be a guess. The first to end are the short
            ones, so as many must have ended as are open; and once no episode waits for its turn, what is left is the
            slow ones, side by side, for which the rate says nothing.
        last_run_s: Seconds that the run before took; None before the second.
    """

    episodes: int
    phases: Mapping[Phase, int]
    elapsed_s: float
    turns: int
    reward: float | None
    rewarded: int
    failures: Mapping[str, int]
    slowest: tuple[SlowEpisode, ...]
    slowest_phase: Phase | None
    slowest_phase_share: float
    remaining_s: float | None
    last_run_s: float | None = None

    @property
    def ended(self) -> int:
        """Episodes that are over."""
        return self.phases[Phase.DONE] + self.phases[Phase.FAILED]


@dataclass
class _Episode:
    phase: Phase = Phase.WAITING
    since: float = 0.0
    started: float | None = None
    turns: int = 0


@dataclass
class BatchProgress:
    """Keeps where each episode of a run is. It is a `RolloutObserver`."""

    _episodes: dict[int, _Episode] = field(default_factory=dict[int, _Episode])
    _spent: dict[Phase, float] = field(default_factory=dict[Phase, float])
    _failures: Counter[str] = field(default_factory=Counter[str])
    _began: float = 0.0
    _turns: int = 0
    _reward: float = 0.0
    _rewarded: int = 0
    _last_run_s: float | None = None

    def run_started(self, episodes: int, now: float) -> None:
        """Forgets the run before, and begins with all episodes waiting."""
        self._episodes = {index: _Episode(since=now) for index in range(episodes)}
        self._spent = dict.fromkeys((phase for phase in Phase if not phase.is_end), 0.0)
        self._failures = Counter()
        self._began, self._turns, self._reward, self._rewarded = now, 0, 0.0, 0

    def episode_started(self, index: int, now: float) -> None:
        """Counts the episode's seconds from now on."""
        episode = self._episode(index, now)
        episode.started = episode.since = now

    def phase_changed(self, index: int, phase: Phase, now: float) -> None:
        """Moves the episode on."""
        episode = self._episodes.get(index) or self._episode(index, now)
        before = episode.phase
        if before is phase or before.is_end:
            return
        if episode.started is not None:
            self._spent[before] += now - episode.since
        episode.phase, episode.since = phase, now

    def turn_ended(self, index: int, turn: Turn, now: float) -> None:
        """Counts a turn."""
        self._turns += 1
        episode = self._episodes.get(index) or self._episode(index, now)
        episode.turns += 1

    def episode_finished(self, index: int, trajectory: Trajectory, now: float) -> None:
        """Counts how the episode ended."""
        failed = trajectory.end_reason.is_failure
        if self._episode(index, now).phase.is_end:
            return
        self.phase_changed(index, Phase.FAILED if failed else Phase.DONE, now)
        if failed:
            self._failures[trajectory.end_reason.value] += 1
        reward = trajectory.reward
        if reward is not None:
            self._reward += reward
            self._rewarded += 1

    def run_ended(self, now: float) -> None:
        """Remembers how long the run took. What was not over stays where it was."""
        self._last_run_s = now - self._began

    def view(self, now: float, *, slowest: int = 3) -> BatchView:
        """Where the batch stands.

        Args:
            now: The time, on the clock of the events.
            slowest: How many slow episodes to name at most.
        """
        phases, spent = dict.fromkeys(Phase, 0), dict(self._spent)
        open_ones: list[tuple[float, int]] = []
        for index, episode in self._episodes.items():
            phases[episode.phase] += 1
            if episode.started is not None and not episode.phase.is_end:
                spent[episode.phase] += now - episode.since
                open_ones.append((episode.started, index))
        total = sum(spent.values())
        most = max(spent, key=spent.__getitem__) if total > 0 else None
        return BatchView(
            episodes=len(self._episodes),
            phases=phases,
            elapsed_s=now - self._began,
            turns=self._turns,
            reward=self._reward / self._rewarded if self._rewarded else None,
            rewarded=self._rewarded,
            failures=dict(self._failures.most_common()),
            slowest=tuple(self._slow(index, now) for _, index in heapq.nsmallest(slowest, open_ones)),
            slowest_phase=most,
            slowest_phase_share=spent[most] / total if most is not None else 0.0,
            remaining_s=self._remaining(phases, len(open_ones), now),
            last_run_s=self._last_run_s,
        )

    def _episode(self, index: int, now: float) -> _Episode:
        """The episode; a new one where the run began with fewer (over-sampling)."""
        return self._episodes.setdefault(index, _Episode(since=now))

    def _slow(self, index: int, now: float) -> SlowEpisode:
        episode = self._episodes[index]
        started = now if episode.started is None else episode.started
        return SlowEpisode(index, episode.phase, now - episode.since, now - started, episode.turns)

    def _remaining(self, phases: Mapping[Phase, int], open_now: int, now: float) -> float | None:
        ended = phases[Phase.DONE] + phases[Phase.FAILED]
        left = len(self._episodes) - ended
        if not left:
            return 0.0
        if left <= open_now or ended < max(_FEWEST_FOR_A_GUESS, open_now):
            return None
        return left * (now - self._began) / ended
