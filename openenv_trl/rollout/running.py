"""One run: plays the members of a `Roster` side by side, and brings back a trajectory for each task.

The roster decides who plays and who is not needed, the `StragglerWatch` who is late; this starts, stops and collects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
import anyio.abc

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.attempts import Attempts
from openenv_trl.rollout.batching import BatchedPolicy
from openenv_trl.rollout.episode import Episode, EpisodeSetting
from openenv_trl.rollout.failures import is_of_the_call
from openenv_trl.rollout.roster import Roster
from openenv_trl.rollout.strategies.settings import RolloutStrategies
from openenv_trl.rollout.strategies.straggler import CutStragglers, StragglerWatch
from openenv_trl.rollout.task import Task
from openenv_trl.rollout.trajectory import EndReason, Trajectory


@dataclass(frozen=True)
class RunResult:
    """What a run brought back.

    Attributes:
        trajectories: One for each task, in the tasks' order.
        left_out: Those that were played beside them: surplus, or replaced by a fresh episode.
    """

    trajectories: list[Trajectory]
    left_out: list[Trajectory]


@dataclass
class _Member:
    episode: Episode
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    has_begun: bool = False
    trajectory: Trajectory | None = None


class Run:
    """A run of episodes.

    Args:
        tasks: What to play.
        setting: What all episodes share.
        attempts: Plays one episode.
        strategies: What is done about failed and slow ones.
        batched: The policy, which is told of each episode that lives.
        max_concurrent_episodes: Episodes open at once.
        on_trajectory: Called with each trajectory that is to be returned, as soon as that is certain.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        setting: EpisodeSetting,
        attempts: Attempts,
        strategies: RolloutStrategies,
        batched: BatchedPolicy,
        *,
        max_concurrent_episodes: int,
        on_trajectory: Callable[[Trajectory], None] | None,
    ) -> None:
        self._setting = setting
        self._attempts = attempts
        self._batched = batched
        self._on_trajectory = on_trajectory
        self._roster = Roster(tasks, strategies.over_sampling, strategies.refill)
        self._members = [_Member(Episode(task, setting, index)) for index, task in enumerate(self._roster.tasks)]
        cut = strategies.straggler
        self._stragglers = StragglerWatch(cut, self._roster.first) if isinstance(cut, CutStragglers) else None
        self._turnstile = anyio.Semaphore(max_concurrent_episodes)
        self._began = anyio.current_time()
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def episodes(self) -> int:
        """How many are played from the beginning."""
        return self._roster.first

    async def play(self, timeout_s: float | None) -> None:
        """Play all.

        Args:
            timeout_s: Seconds after which what is not over ends with ``BATCH_TIMEOUT``; None for never.

        Raises:
            ConfigurationError: A setting cannot work.
            PolicyError: The policy's completions are not what they must be.
        """
        async with anyio.create_task_group() as background:  # where sessions are closed that nobody waits for
            with anyio.move_on_after(timeout_s):
                async with anyio.create_task_group() as self._group:
                    for index in range(self._roster.first):
                        self._group.start_soon(self._play, index, background)
            self._group = None
        for index, member in enumerate(self._members):
            if member.trajectory is None:
                text = f"the run took longer than batch_timeout_s={timeout_s or 0:g}"
                self._end(index, EndReason.BATCH_TIMEOUT, text)

    async def _play(self, index: int, background: anyio.abc.TaskGroup) -> None:
        try:
            await self._play_member(index, background)
        except BaseException as error:  # boundary: observers, parsers and callbacks are anyone's code
            # What ends a program would end the event loop, and everybody who waits for it would wait for ever.
            if isinstance(error, Exception) or not await is_of_the_call(error):
                raise
            raise ConfigurationError(
                f"A function that was given to the rollout raised {type(error).__name__} ({error}). An observer, a "
                "callback or a function that reads actions must not end the program: return, or raise an Exception."
            ) from error

    async def _play_member(self, index: int, background: anyio.abc.TaskGroup) -> None:
        member = self._members[index]
        episode = member.episode
        ended: tuple[EndReason, str | None] | None = None
        with member.scope:
            async with self._turnstile:
                now = anyio.current_time()
                member.has_begun = True
                episode.started_s = now - self._began
                if self._setting.observer is not None:
                    self._setting.observer.episode_started(index, now)
                if self._stragglers is not None:
                    member.scope.deadline = self._stragglers.started(index, now)
                with self._batched.episode():
                    ended = await self._attempts.play(episode, background)
        reason, error = ended or self._why_cut(index)
        for fresh in self._end(index, reason, error):
            assert self._group is not None
            self._group.start_soon(self._play, fresh, background)

    def _why_cut(self, index: int) -> tuple[EndReason, str]:
        if self._roster.is_full(index):
            return EndReason.SURPLUS, "the group had all the episodes that it needs"
        return EndReason.STRAGGLER, "most of the batch had ended, and the grace for the rest was over"

    def _end(self, index: int, reason: EndReason, error: str | None) -> tuple[int, ...]:
        """Note an episode's end and do what follows of it; returns the members to be played from now on."""
        member, now = self._members[index], anyio.current_time()
        if not member.has_begun:
            member.episode.started_s = now - self._began
        changes = self._roster.ended(index, reason)
        trajectory = member.episode.trajectory(reason, now - self._began, error)
        member.trajectory = trajectory = self._as_surplus(trajectory) if self._roster.is_surplus(index) else trajectory
        if self._setting.observer is not None:
            self._setting.observer.episode_finished(index, trajectory, now)
        for other in changes.stop:
            self._members[other].scope.cancel()
        for fresh in changes.start:
            episode = Episode(self._roster.tasks[fresh], self._setting, fresh)
            episode.failures.append(f"{reason.value}: {error} (another episode of this task)")
            self._members.append(_Member(episode))
        if self._stragglers is not None:
            for other, deadline in self._stragglers.ended(index, now).items():
                self._members[other].scope.deadline = deadline
        for settled in changes.settled:
            done = self._members[settled].trajectory
            if self._on_trajectory is not None and done is not None:
                self._on_trajectory(done)
        return changes.start

    def _as_surplus(self, trajectory: Trajectory) -> Trajectory:
        return replace(trajectory, end_reason=EndReason.SURPLUS, error="the group had all the episodes that it needs")

    def result(self) -> RunResult:
        """What came of it, when all have been played."""
        chosen = self._roster.chosen()
        every: list[Trajectory] = []
        for index, member in enumerate(self._members):
            assert member.trajectory is not None
            surplus = self._roster.is_surplus(index)
            every.append(self._as_surplus(member.trajectory) if surplus else member.trajectory)
        left_out = [each for index, each in enumerate(every) if index not in set(chosen)]
        return RunResult([every[index] for index in chosen], left_out)
