"""How a server stops: no new sessions, time for the episodes that run, then an end that says so.

The first SIGTERM or SIGINT begins the drain: ``/ready`` turns 503, new sessions are refused, steps are still answered.
Sessions without an episode end soon, the others when theirs is done. The drain is over when no session is left, after
``drain_timeout_s``, or with a second signal. Then the sockets close with code 1012 and the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from types import FrameType
from typing import Any, cast

import anyio
import uvicorn

from openenv_trl.server.host import SessionHost

logger = logging.getLogger("openenv_trl.server")

_STUCK_S = 2.0  # without a turn of the event loop, which comes ten times a second


class Stage(Enum):
    """Where a server stands."""

    SERVING = "serving"
    DRAINING = "draining"
    OVER = "over"


class Drain:
    """When a server's drain begins and ends. It owns no clock: times are the caller's.

    Args:
        timeout_s: How long running episodes get.
    """

    def __init__(self, timeout_s: float) -> None:
        self.stage = Stage.SERVING
        self.timeout_s = timeout_s
        self._ends_at = 0.0

    def begin(self, now: float) -> None:
        """Begin, if it has not begun."""
        if self.stage is Stage.SERVING:
            self.stage = Stage.DRAINING
            self._ends_at = now + self.timeout_s

    def end(self) -> None:
        """End at once."""
        self.stage = Stage.OVER

    def look(self, now: float, sessions: int) -> Stage:
        """Return where the server stands, with that many sessions left."""
        if self.stage is Stage.DRAINING and (sessions == 0 or now >= self._ends_at):
            self.stage = Stage.OVER
        return self.stage


class DrainingServer(uvicorn.Server):
    """uvicorn's server with a drain before its shutdown.

    Args:
        config: uvicorn's.
        hosts: Whose sessions are drained; see `states_of`.
        drain: When it begins and ends.
        obeys_parent: Whether a parent says when to end at once; a signal then only begins the drain, however often it
            comes, as signals come to a whole group of processes.
        beside: Runs beside the server, from its start until its drain is over.
        on_drain: Called when the drain begins.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        hosts: Sequence[SessionHost],
        drain: Drain,
        *,
        obeys_parent: bool = False,
        beside: Sequence[Callable[[uvicorn.Server], Coroutine[Any, Any, None]]] = (),
        on_drain: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        self._hosts = hosts
        self._drain = drain
        self._obeys_parent = obeys_parent
        self._beside = beside
        self._on_drain = on_drain
        self._told = False
        self._serving = False
        self._ticked_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the drain; a second signal ends it."""
        if self._drain.stage is Stage.SERVING or self._obeys_parent:
            self.begin_drain()
            return
        self._drain.end()
        stuck_s = time.monotonic() - self._ticked_at
        if self._serving and stuck_s > _STUCK_S:
            # Whoever would close the environments never has its turn again.
            logger.error("Leaving at once: for %.0f s the code of an environment has blocked the event loop", stuck_s)
            logging.shutdown()
            os._exit(1)

    def begin_drain(self) -> None:
        """Take no new sessions, and stop when those that there are have ended."""
        self._drain.begin(time.monotonic())
        if self._loop is not None:
            # A signal's handler may run in the midst of anything.
            self._loop.call_soon_threadsafe(self._tell)

    def end_drain(self) -> None:
        """Stop now."""
        self._drain.end()

    async def main_loop(self) -> None:
        """Serve until the drain is over."""
        self._loop = asyncio.get_running_loop()
        self._serving = True
        async with anyio.create_task_group() as tasks:
            for each in self._beside:
                tasks.start_soon(each, self)
            await super().main_loop()
            self._serving = False
            tasks.cancel_scope.cancel()

    async def on_tick(self, counter: int) -> bool:
        """Look after the drain, ten times a second; True once it is over."""
        self._ticked_at = time.monotonic()
        if await super().on_tick(counter):
            return True
        if self._drain.stage is Stage.SERVING:
            return False
        self._tell()
        sessions = self._sessions_left()
        over = self._drain.look(time.monotonic(), sessions) is Stage.OVER
        if over and sessions:
            logger.warning("The server stops though %d session(s) had not ended", sessions)
        return over

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        if self._on_drain is not None:
            self._on_drain()
        for host in self._hosts:
            host.drain()
        sessions = self._sessions_left()
        if sessions and self._drain.timeout_s:
            logger.info(
                "Stopping: %d session(s) get up to %g s to end their episodes. A second signal ends them at once.",
                sessions,
                self._drain.timeout_s,
            )

    def _sessions_left(self) -> int:
        return sum(len(host.sessions) for host in self._hosts)


def states_of(app: Any) -> list[Any]:
    """Return the ``state`` of each application of `create_app` in this one: its own, what it wraps, what it mounts."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting: list[Any] = [app]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        state = getattr(each, "state", None)
        if isinstance(getattr(state, "session_host", None), SessionHost):
            found.append(state)
        waiting.append(getattr(each, "app", None))
        waiting += cast("list[Any]", list(getattr(each, "routes", None) or ()))
    return found
