"""One person at the debug page: a session of their own, opened at the first reset, through the same door as any other.

Promises: whoever only looks takes no slot; one thing at a time, in order; whatever fails, the caller learns whether the
session still stands; `leave` gives the slot back, and so does nobody's using it for the detached timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import anyio

from openenv_trl.errors import EnvironmentExecutionError, OpenEnvError, SessionLostError, SessionStateError
from openenv_trl.server.dialogue import CARRIED_OUT, unsendable
from openenv_trl.server.host import SessionHost
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.session import SessionEnd
from openenv_trl.server.web.episode_record import EpisodeRecord
from openenv_trl.types import Observation
from openenv_trl.wire.codec import decode, encode
from openenv_trl.wire.observations import serialize_observation

_NO_SESSION = "There is no episode yet: reset first."


class Visitor:
    """One person's session, and what they did in it.

    Args:
        host: Where the session is opened.
        wait_s: How long to wait for a slot.
        keeps_log: Whether what was observed is kept, for those who watch.

    Attributes:
        record: The running episode.
        state: The environment's state after the last call; None where it could not be read.
        on_wait: Called when the session has to wait for its slot.
        on_end: Called with a sentence when the session ended though its visitor did not close it.
        watchers: Called after each call that changed something.
    """

    def __init__(self, host: SessionHost, *, wait_s: float, keeps_log: bool = False) -> None:
        self._host = host
        self._wait_s = wait_s
        self._session: HostedSession | None = None
        self._lock = anyio.Lock()
        self._opening: anyio.CancelScope | None = None
        self._leaving = False
        self.record = EpisodeRecord(keeps_observations=keeps_log)
        self.state: dict[str, Any] | None = None
        self.on_wait: Callable[[], None] = _nothing
        self.on_end: Callable[[str], None] = _ignore
        self.watchers: list[Callable[[], None]] = []

    @property
    def session(self) -> HostedSession | None:
        """The session; None where none is open."""
        return self._session

    async def reset(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode, in a session that is opened now if there is none. Returns what the page shows.

        Raises:
            OpenEnvError: As `HostedSession.reset`, or no slot was free in time.
        """
        async with self._lock:
            session = await self._opened()
            begun = time.perf_counter()
            observation = await session.reset(arguments)
            seconds = time.perf_counter() - begun
            known = session.hooks.reset_arguments if session.hooks is not None else None
            dropped = sorted(arguments.keys() - known) if known is not None else []
            self.record.begin(arguments)
            data, size = self._travelling(session, observation, "reset")
            self.record.observe(data["observation"])
            return await self._shown(session, data, size, seconds, dropped=dropped)

    async def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Take one step. Returns what the page shows.

        Raises:
            OpenEnvError: As `HostedSession.step`; or there is no session.
        """
        async with self._lock:
            session = self._present()
            begun = time.perf_counter()
            observation = await session.step(action)
            seconds = time.perf_counter() - begun
            data: dict[str, Any] = {"observation": {}, "reward": observation.reward, "done": observation.done}
            size = 0
            try:
                data, size = self._travelling(session, observation, "step")
            finally:
                self.record.add(action, data, size, time.time())
            return await self._shown(session, data, size, seconds)

    async def read_state(self) -> dict[str, Any]:
        """Return the environment's state.

        Raises:
            OpenEnvError: As `HostedSession.state`; or there is no session.
        """
        async with self._lock:
            session = self._present()
            try:
                self.state = decode(encode(await session.state()))
            except TypeError as error:
                fault = unsendable("state was read", error, session.about("state"))
                raise EnvironmentExecutionError(fault.message, phase="state") from error
            return cast("dict[str, Any]", self.state)

    def stop(self) -> None:
        """Wait no longer for a slot; a call that runs is stopped, and the session ends with it."""
        if self._opening is not None:
            self._opening.cancel()
        elif self._session is not None:
            self._session.cancel_call()

    async def leave(self) -> None:
        """Give the session back. A later reset opens another."""
        session, self._session = self._session, None
        self.state = None
        if session is not None:
            self._leaving = True
            try:
                await session.close()
            finally:
                self._leaving = False

    async def _opened(self) -> HostedSession:
        if self._session is not None and not self._session.is_over:
            return self._session
        if self._wait_s > 0 and (self._host.status.is_at_capacity or self._host.metrics.waiting):
            self.on_wait()
        session: HostedSession | None = None
        with anyio.CancelScope() as self._opening:
            try:
                session = await self._host.open(wait_s=self._wait_s, transport="web", held=False)
            finally:
                self._opening = None
        if session is None:
            raise SessionStateError("You stopped waiting: there is no session.")
        self._session = session
        session.watch_end(partial(self._ended, session))
        return self._present()

    def _present(self) -> HostedSession:
        session = self._session
        if session is None:
            raise SessionStateError(_NO_SESSION)
        if session.is_over:
            self._session = None
            raise session.session.lost("") or SessionLostError(_NO_SESSION)
        return session

    def _ended(self, session: HostedSession) -> None:
        if self._session is session:
            self._session = None
        if not self._leaving:
            self.on_end(end_in_words(session))

    def _travelling(self, session: HostedSession, observation: Observation, call: str) -> tuple[dict[str, Any], int]:
        try:
            text = encode(serialize_observation(observation))
        except Exception as error:  # boundary: pydantic serializers are the environment author's code
            fault = unsendable(CARRIED_OUT[call], error, session.about(call))
            raise EnvironmentExecutionError(fault.message, phase=call) from error
        return decode(text), len(text)

    async def _shown(
        self, session: HostedSession, data: dict[str, Any], size: int, seconds: float, **more: Any
    ) -> dict[str, Any]:
        shown: dict[str, Any] = {"data": data, "bytes": size, "seconds": seconds, "problems": [], **more}
        shown["step_count"] = self.record.step_count
        shown["tools"] = [tool.model_dump() for tool in session.tools]
        problems: list[str] = shown["problems"]
        hooks = session.hooks
        try:
            self.state = shown["state"] = decode(encode(await session.state()))
        except (OpenEnvError, TypeError) as error:
            self.state = shown["state"] = None
            problems.append(f"The state could not be read: {error}")
        observation = data["observation"]
        if hooks is not None and hooks.renders_web:
            shown["html"] = await self._from_hook(session, "render_web", observation, str, problems)
        if hooks is not None and hooks.has_web_actions:
            offered = await self._from_hook(session, "web_actions", observation, list, problems)
            shown["buttons"] = _buttons(offered or [], problems)
        for changed in self.watchers:
            changed()
        return shown

    async def _from_hook(
        self, session: HostedSession, hook: str, observation: Any, expected: type[Any], problems: list[str]
    ) -> Any:
        try:
            found = await session.call_method(hook, observation)
        except OpenEnvError as error:
            problems.append(f"{hook} failed: {error}")
            return None
        if found is not None and not isinstance(found, expected):
            problems.append(f"{hook} returned a {type(found).__name__}, not a {expected.__name__}.")
            return None
        return found


def end_in_words(session: HostedSession) -> str:
    """Say why a session ended."""
    end = session.session.end
    if end is SessionEnd.DETACHED:
        return "The session has ended: it was not used for too long. Reset to begin another."
    if end in (SessionEnd.DRAINED, SessionEnd.SHUTDOWN):
        return "The session has ended: the server is shutting down."
    because = session.session.lost_because
    return f"The session has ended{f': {because}' if because else ''}. Reset to begin another."


def _buttons(offered: list[Any], problems: list[str]) -> list[dict[str, Any]]:
    buttons: list[dict[str, Any]] = []
    for each in offered:
        pair: list[Any] = list(each) if isinstance(each, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
        if len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], dict):
            try:
                buttons.append({"label": pair[0], "action": decode(encode(pair[1]))})
                continue
            except TypeError:
                pass
        problems.append("web_actions gave something that is no (label, action) pair of a text and JSON fields.")
        break
    return buttons


def _nothing() -> None:
    pass


def _ignore(_: str) -> None:
    pass
