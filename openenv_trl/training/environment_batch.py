"""The episodes of one environment that a trainer plays in one batch, from the first reset to the rewards.

A trainer asks for the rewards when all episodes of the batch are over. The first that is asked for ends them all:
sessions go back to the pool, and whatever scores them does so side by side.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread

from openenv_trl.errors import ConfigurationError, RolloutFailureError
from openenv_trl.rollout.trajectory import EndReason
from openenv_trl.training.batch_tally import BatchTally
from openenv_trl.training.environment_sessions import EnvironmentSessions
from openenv_trl.training.episode_progress import EpisodeProgress
from openenv_trl.training.skipped_steps import SkippedSteps, Verdict

if TYPE_CHECKING:
    from openenv_trl.training.environment_class import FactoryEnvironment

logger = logging.getLogger(__name__)

Score = Callable[[EpisodeProgress], "float | Awaitable[float | None] | None"]
"""The reward of an episode that did not fail; None where there is nothing to learn from."""


class EnvironmentBatch:
    """Which episodes are played now, and how the last batch ended.

    Args:
        sessions: Theirs.
        score: Rewards an episode; the sum of the environment's own rewards if None.
        score_timeout_s: Seconds for it.
        unfinished: Added to the environment's rewards where the model left the episode without an end.
        skipped: Decides about batches of which much failed.
        capacity: Sessions that the servers allow; None if it is not known.
    """

    def __init__(
        self,
        sessions: EnvironmentSessions,
        *,
        score: Score | None = None,
        score_timeout_s: float = 60.0,
        unfinished: float = 0.0,
        skipped: SkippedSteps,
        capacity: int | None = None,
    ) -> None:
        self._sessions = sessions
        self._score = score
        self._score_timeout_s = score_timeout_s
        self._unfinished = unfinished
        self._skipped = skipped
        self._capacity = capacity
        self._size = 0
        self._playing: dict[FactoryEnvironment, None] = {}
        self._rewards: dict[FactoryEnvironment, float | None] = {}
        self._is_scored = False
        self._has_warned = False
        self.metrics: dict[str, float] = {}
        """The last batch's numbers."""
        self.start_calls: Callable[[], None] | None = None
        """Starts the calls of all rollouts, where the trainer's loop makes the first of them."""
        self._is_reported = True

    def take_metrics(self) -> dict[str, float]:
        """The last batch's numbers; empty where they were taken before."""
        is_reported, self._is_reported = self._is_reported, True
        return {} if is_reported else self.metrics

    def joined(self, environment: FactoryEnvironment) -> None:
        """A rollout more is played at once.

        Raises:
            ConfigurationError: It can never have a session beside the others.
        """
        self._size += 1
        if self._capacity is not None and self._size > self._capacity:
            raise ConfigurationError(too_few_sessions(self._size, self._capacity, self._sessions))

    def began(self, environment: FactoryEnvironment, seed: Any) -> None:
        """An episode of the batch begins, with this seed; after rewards were given, of the next batch."""
        if self._is_scored:
            self._playing, self._rewards, self._is_scored = {}, {}, False
        self._playing[environment] = None
        if seed is None and not self._has_warned:
            self._has_warned = True
            logger.warning(NO_SEED)

    def reward_of(self, environment: FactoryEnvironment) -> float | None:
        """The reward of one episode; the first call scores the whole batch.

        Raises:
            RolloutFailureError: Too many batches in a row failed.
        """
        if not self._is_scored:
            self._finish()
        return self._rewards.get(environment)

    def _finish(self) -> None:
        self._is_scored = True
        environments = list(self._playing)
        futures = self._sessions.submit([self._ending(environment) for environment in environments])
        rewards = [future.result() for future in futures]
        played = [environment._progress for environment in environments]  # pyright: ignore[reportPrivateUsage]
        self.metrics, self._is_reported = batch_metrics(played), False
        if judge(played, self._skipped, self._sessions):
            self._rewards = dict(zip(environments, rewards, strict=True))

    def _ending(self, environment: FactoryEnvironment) -> Callable[[], Awaitable[float | None]]:
        episode = environment._episode  # pyright: ignore[reportPrivateUsage]

        async def end() -> float | None:
            episode.end()
            progress = episode.progress
            if self._score is None or progress.has_failed:
                return progress.reward(self._unfinished)
            return await score_of(self._score, progress, self._score_timeout_s)

        return end


NO_SEED = (
    "The dataset has no 'seed' column: each generation of a prompt is reset without a seed, so the environment may "
    "give each of a group a different task, and GRPO compares what is not alike. Add a column 'seed', one number a "
    "row; train with EnvironmentGRPOTrainer, which derives one for each group; or ignore this, if other columns fix "
    "the task."
)


async def score_of(score: Score, progress: EpisodeProgress, timeout_s: float) -> float | None:
    """What a function of the user's gives an episode: a finite number, or None, also where it fails."""
    try:
        with anyio.fail_after(timeout_s):
            value: Any = await anyio.to_thread.run_sync(score, progress, abandon_on_cancel=True)
            if isinstance(value, Awaitable):
                value = await cast("Awaitable[Any]", value)
    except Exception as error:  # boundary: the function is the user's, and may ask a judge over the network
        logger.warning("An episode was not scored: %s: %s", type(error).__name__, error)
        return None
    if value is None or not isinstance(value, (bool, int, float)) or not math.isfinite(value):
        if value is not None:
            logger.warning("An episode was not scored: its score is no finite number but %r.", value)
        return None
    return float(value)


def batch_metrics(played: list[EpisodeProgress]) -> dict[str, float]:
    """The numbers of a batch: shares, means, and a count for each reason of failure."""
    count = max(len(played), 1)
    reasons = Counter(p.end_reason.value for p in played if p.end_reason is not None and p.has_failed)
    seconds = [p.environment_s for p in played] or [0.0]
    return {
        "episodes": float(len(played)),
        "failed_fraction": sum(reasons.values()) / count,
        "done_fraction": sum(p.end_reason in (EndReason.DONE, EndReason.TRUNCATED) for p in played) / count,
        "steps": sum(len(p.actions) for p in played) / count,
        "invalid_actions": sum(p.invalid_actions for p in played) / count,
        "tried_again": float(sum(max(p.attempts - 1, 0) for p in played)),
        "environment_s": sum(seconds) / count,
        "slowest_environment_s": max(seconds),
        **{f"failed/{reason}": float(number) for reason, number in sorted(reasons.items())},
    }


def judge(played: list[EpisodeProgress], skipped: SkippedSteps, sessions: EnvironmentSessions) -> bool:
    """Whether a batch is to be learned from, and what there is to say of it.

    Raises:
        RolloutFailureError: Too many batches in a row were not.
        ConfigurationError: The environment refused every episode, and has not played one before.
    """
    sessions.refusals.ended((p.end_reason, p.error) for p in played)
    failed = [p for p in played if p.has_failed and p.end_reason is not None]
    reasons = Counter(p.end_reason.value for p in failed if p.end_reason is not None)
    examples = {p.end_reason.value: (p.error or "")[:300] for p in failed if p.end_reason is not None}
    decision = skipped.decide(BatchTally(len(played), dict(reasons), examples))
    text = f"{decision.message} Look at the servers' logs ({sessions.where})."
    if decision.verdict is Verdict.STOP:
        raise RolloutFailureError(text)
    if decision.message:
        logger.warning(text)
    return decision.verdict is Verdict.TRAIN


def too_few_sessions(wanted: int, capacity: int, sessions: EnvironmentSessions) -> str:
    """What to change where a batch needs more sessions than there can be."""
    return (
        f"The trainer plays {wanted} or more episodes at once, and there are {capacity} sessions: the servers "
        f"({sessions.where}) and sessions_per_server={sessions.settings.sessions_per_server} allow no "
        "more. TRL resets all environments of a batch before it plays any, so none can wait for another. Start the "
        "servers with a larger MAX_CONCURRENT_ENVS, give more of them, raise sessions_per_server, or use "
        "rollout_func=EnvironmentRollout(...), whose episodes wait their turn."
    )
