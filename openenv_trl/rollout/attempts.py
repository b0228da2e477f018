"""All attempts at one episode: a session for each, tried again as the strategies say, given back whatever happens."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import anyio
import anyio.abc

from openenv_trl.chance import CHANCE
from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout.episode import Episode
from openenv_trl.rollout.failures import EpisodeFailed, failure_of, is_of_the_call
from openenv_trl.rollout.hedging import HedgedSession
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.observer import Phase
from openenv_trl.rollout.session import SessionLease, SessionSource
from openenv_trl.rollout.strategies.hedge import HedgeSlowCalls
from openenv_trl.rollout.strategies.settings import RolloutStrategies
from openenv_trl.rollout.trajectory import EndReason

logger = logging.getLogger("openenv_trl.rollout")


class Attempts:
    """Plays episodes over a pool, each with as many attempts as it is worth.

    Args:
        pool: Where sessions come from.
        limits: How far an episode may go.
        strategies: What is tried again, and whether slow calls are hedged.
        chance: Spreads the pauses: gives numbers from 0 to 1.
    """

    def __init__(
        self,
        pool: SessionSource,
        limits: RolloutLimits,
        strategies: RolloutStrategies,
        chance: Callable[[], float] = CHANCE.random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """What happened beside the episodes, such as hedges."""
        self._pool = pool
        self._limits = limits
        self._strategies = strategies
        self._chance = chance

    async def play(self, episode: Episode, background: anyio.abc.TaskGroup) -> tuple[EndReason, str | None]:
        """Play an episode.

        Args:
            episode: Which.
            background: Where sessions are closed that nobody waits for; it ends after all episodes.

        Returns:
            How it ended, and what went wrong if something did.

        Raises:
            ConfigurationError: The user's settings cannot work.
            PolicyError: The policy's completions are not what they must be.
        """
        limits, retry = self._limits, self._strategies.retry
        with anyio.CancelScope() as scope:
            while True:
                try:
                    return await self._attempt(episode, scope, background), None
                except EpisodeFailed as failure:
                    pause_s = retry.pause_s(failure.reason, episode.attempts, limits, self._chance())
                    if pause_s is None or failure.is_final:
                        return failure.reason, str(failure)
                    episode.failures.append(f"{failure.reason.value}: {failure}")
                    episode.enter(Phase.WAITING)
                    await anyio.sleep(pause_s)
        return EndReason.EPISODE_TIMEOUT, f"the episode took longer than episode_timeout_s={limits.episode_timeout_s:g}"

    async def release(self, lease: SessionLease, healthy: bool) -> None:
        """Give a session back, also while being cancelled: one that is not given back is lost to everyone."""
        with anyio.CancelScope(shield=True):
            try:
                await self._pool.release(lease, healthy=healthy)
            except BaseException as error:  # boundary: closing a session may be anyone's code
                if not await is_of_the_call(error):
                    raise
                logger.warning("A session of %s could not be given back: %r", lease.base_url, error)

    async def _attempt(self, episode: Episode, scope: anyio.CancelScope, background: anyio.abc.TaskGroup) -> EndReason:
        episode.attempts += 1
        episode.session_in_call = False
        began = anyio.current_time()
        try:
            lease = await self._acquire()
        finally:
            episode.waiting_s += anyio.current_time() - began
        if episode.attempts == 1:
            scope.deadline = anyio.current_time() + self._limits.episode_timeout_s
        episode.base_url = lease.base_url
        hedge = self._strategies.straggler
        hedged = self._hedged(lease, hedge, background) if isinstance(hedge, HedgeSlowCalls) else None
        failed = False
        try:
            return await episode.play(lease.session if hedged is None else hedged)
        except EpisodeFailed as failure:
            # One that was asked in vain is as good as before; to close it would end its server's idle sessions with it.
            failed = failure.reason is not EndReason.CONFIGURATION_ERROR
            raise await self._explained(failure, hedged.lease if hedged else lease) from failure.__cause__
        finally:
            await self.release(hedged.lease if hedged else lease, not failed and not episode.session_in_call)

    async def _explained(self, failure: EpisodeFailed, lease: SessionLease) -> EpisodeFailed:
        """The failure, with why the session's server died, where the pool knows that it did."""
        explain = getattr(self._pool, "explain", None)
        if explain is None or failure.reason is not EndReason.SESSION_LOST:
            return failure
        try:
            why = await explain(lease.base_url)
        except Exception as error:
            logger.debug("why %s was lost is not known: %r", lease.base_url, error)
            return failure
        return EpisodeFailed(failure.reason, f"{failure} {why}") if why else failure

    async def _acquire(self) -> SessionLease:
        try:
            return await self._pool.acquire(self._limits.connect_timeout_s)
        except (ConfigurationError, PolicyError):
            raise
        except BaseException as error:  # boundary: connecting may be anyone's code
            if not await is_of_the_call(error):
                raise
            raise failure_of(error, "connect") from error

    def _hedged(self, lease: SessionLease, strategy: HedgeSlowCalls, background: anyio.abc.TaskGroup) -> HedgedSession:
        def give_back(loser: SessionLease) -> None:
            background.start_soon(self.release, loser, False)

        return HedgedSession(lease, self._acquire, give_back, strategy, self.counts)
