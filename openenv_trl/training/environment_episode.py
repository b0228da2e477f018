"""One episode in a session, driven from outside: reset, then one call after another, then its end.

`EpisodeProgress` decides what a result means; this makes the calls, each under its deadline. What the model does
wrong is answered; what the environment does wrong ends the episode, and is tried again in a fresh session only where
nothing was played yet: in the reset.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import anyio

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.rollout.answer import Answer, done_at_once, read_result
from openenv_trl.rollout.failures import EpisodeFailed, failure_of
from openenv_trl.rollout.session import SessionLease
from openenv_trl.rollout.trajectory import EndReason
from openenv_trl.training.environment_sessions import EnvironmentSessions
from openenv_trl.training.episode_progress import OVER_TEXT, EpisodeProgress

T = TypeVar("T")

_FINAL = frozenset({EndReason.CAPACITY, EndReason.EPISODE_TIMEOUT, EndReason.CONFIGURATION_ERROR})
"""Failures that a fresh session would have too."""


class EnvironmentEpisode:
    """An episode that can be begun again and again, each time in a session of the pool.

    Its calls are made one at a time, on the loop of its sessions.

    Args:
        sessions: Where sessions, tools and limits come from.
    """

    def __init__(self, sessions: EnvironmentSessions) -> None:
        self._sessions = sessions
        self._lease: SessionLease | None = None
        self._deadline = math.inf
        self.progress = EpisodeProgress()

    async def begin(self, arguments: Mapping[str, Any]) -> str | None:
        """Reset an environment; returns its first observation, or None where it could not be had.

        Raises:
            ConfigurationError: The user's settings cannot work.
        """
        limits = self._sessions.limits
        self.end()
        self.progress = EpisodeProgress(limits.max_invalid_actions, arguments=dict(arguments))
        self._deadline = math.inf
        while True:
            self.progress.attempts += 1
            try:
                return self.progress.begun(await self._attempt())
            except EpisodeFailed as failure:
                self._give_back(healthy=failure.reason is EndReason.CONFIGURATION_ERROR)
                tried = self.progress.attempts
                final = failure.is_final or failure.reason in _FINAL
                if final or tried >= limits.max_attempts or anyio.current_time() >= self._deadline:
                    self.progress.failed(failure)
                    return None
                await anyio.sleep(limits.retry_delay_s * 2 ** (tried - 1))

    async def act(self, name: str, arguments: Any) -> str:
        """Call a tool of the environment; returns the text that the model is shown. Never raises for what broke."""
        action, problem = self._sessions.tools.step_of(name, arguments)
        return await self.step(action, problem)

    async def step(self, action: dict[str, Any] | None, problem: str = "") -> str:
        """Take an action; returns the text that the model is shown. Never raises for what broke.

        Args:
            action: The action; None where the model asked for none that could be taken.
            problem: What is wrong then, as the model is told.
        """
        progress, lease = self.progress, self._lease
        if lease is None or progress.is_over:
            return OVER_TEXT
        try:
            text = await self._step(progress, lease, action, problem)
        except EpisodeFailed as failure:
            text = progress.failed(failure)
        except ConfigurationError as error:
            self._sessions.mistake = self._sessions.mistake or error
            text = progress.failed(EpisodeFailed(EndReason.ENVIRONMENT_ERROR, f"step: {error}"))
        if progress.is_over and self._lease is lease:
            self._give_back(healthy=progress.was_refused or not progress.has_failed)
        return text

    async def begin_and_play(
        self, arguments: Mapping[str, Any], steps: Sequence[Callable[[EnvironmentEpisode], Awaitable[str]]]
    ) -> None:
        """Play what is known in advance, in order, until the end or what cannot be done.

        Nothing depends on what the environment says, so what breaks in a step is tried again from the start, in a
        fresh session, as often as the limits allow.
        """
        limits = self._sessions.limits
        for tried in range(1, limits.max_attempts + 1):
            await self.begin(arguments)
            self.progress.attempts += tried - 1
            for step in steps:
                if self.progress.is_over or self.progress.invalid_actions:
                    break
                await step(self)
            self.end()
            progress = self.progress
            if not progress.has_failed or not progress.actions_began or progress.was_refused:
                break
            await anyio.sleep(limits.retry_delay_s * 2 ** (tried - 1))

    def spoil(self, why: str) -> None:
        """What was played is not what the model asked for: the episode failed."""
        self._give_back(healthy=False)
        if not self.progress.has_failed:
            self.progress.failed(EpisodeFailed(EndReason.PROTOCOL_ERROR, why))

    def end(self) -> None:
        """The model calls no more: the session is for others."""
        self.progress.left()
        self._give_back(healthy=True)

    async def _attempt(self) -> Answer:
        limits = self._sessions.limits
        try:
            self._lease = await _only_real_cancels(self._sessions.acquire)
        except (ConfigurationError, EpisodeFailed):
            raise
        except Exception as error:  # boundary: connecting may be anyone's code
            failure = failure_of(error, "connect")
            if failure.reason is EndReason.CAPACITY:
                self._sessions.none_was_free()
            raise failure from error
        if self._deadline == math.inf:
            self._deadline = anyio.current_time() + limits.episode_timeout_s
        session = self._lease.session
        arguments = self.progress.arguments
        answer = await self._call("reset", limits.reset_timeout_s, lambda: session.reset(**arguments))
        if answer.done:
            raise done_at_once(answer)
        return answer

    async def _step(
        self, progress: EpisodeProgress, lease: SessionLease, action: dict[str, Any] | None, problem: str
    ) -> str:
        limits, refusals = self._sessions.limits, self._sessions.refusals
        if action is None:
            return progress.refused(self._sessions.reader.defuse(problem)[0])
        progress.actions_began = True
        try:
            answer = await self._call("step", limits.step_timeout_s, lambda: lease.session.step(action))
        except ActionValidationError as error:
            refusals.refused(error, action)
            return progress.refused(self._sessions.reader.defuse(f"Error: {error}")[0])
        refusals.accepted()
        return progress.stepped(action, answer)

    async def _call(self, phase: str, timeout_s: float, call: Callable[[], Awaitable[Any]]) -> Answer:
        """One call of the environment under its deadline, and what it answered."""
        began = anyio.current_time()
        if began >= self._deadline:
            limit = self._sessions.limits.episode_timeout_s
            text = f"{phase}: the episode took longer than episode_timeout_s={limit:g}"
            raise EpisodeFailed(EndReason.EPISODE_TIMEOUT, text)
        try:
            with anyio.fail_after(min(timeout_s, self._deadline - began)):
                result = await _only_real_cancels(call)
        except EpisodeFailed:
            raise
        except ActionValidationError as error:
            if phase == "step":
                raise
            raise failure_of(error, phase) from error
        except TimeoutError as error:
            text = str(error) or f"the environment did not answer within {timeout_s:g} s"
            raise failure_of(TimeoutError(text), phase) from error
        except Exception as error:  # boundary: sessions and environments may be anyone's code
            raise failure_of(error, phase) from error
        finally:
            self.progress.environment_s += anyio.current_time() - began
        rewards = self.progress.rewards
        limit = self._sessions.limits.max_observation_tokens
        reader = cast("Any", self._sessions.reader)
        return read_result(result, phase, reader, max_tokens=limit, earlier_rewards=rewards)

    def _give_back(self, *, healthy: bool) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._sessions.release_soon(lease, healthy=healthy)


async def _only_real_cancels(call: Callable[[], Awaitable[T]]) -> T:
    """What the call gives. Whatever else than an ``Exception`` its code raises is the environment's failure.

    ``SystemExit``, ``KeyboardInterrupt`` and a cancellation of its own making would otherwise end the loop, and with
    it everyone's training. A cancellation by us goes on; a user's interrupt arrives in the main thread, not here.
    """
    try:
        return await call()
    except Exception:
        raise
    except BaseException as error:
        is_cancel = isinstance(error, anyio.get_cancelled_exc_class())
        if is_cancel and anyio.current_effective_deadline() <= anyio.current_time():
            raise
        text = f"the environment raised {type(error).__name__}: {error}"
        raise EpisodeFailed(EndReason.ENVIRONMENT_ERROR, text) from error
