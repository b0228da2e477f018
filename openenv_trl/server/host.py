"""The sessions of one server: slots, threads, who holds them, and when they end.

Nothing here knows of sockets. A transport opens a session, calls it, and closes it; every transport shares the slots.
A session that no connection holds ends by itself some time after its last call.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio

from openenv_trl.environment import default_metadata
from openenv_trl.errors import SessionCapacityError, SessionLostError, SessionStateError
from openenv_trl.server.admission import Admission
from openenv_trl.server.builder import EnvironmentBuilder
from openenv_trl.server.capacity import ServerCapacityStatus, SlotLedger
from openenv_trl.server.departed import Departed
from openenv_trl.server.dropped_arguments import DroppedArguments
from openenv_trl.server.execution import Executor
from openenv_trl.server.hooks import AnyEnvironment, EnvironmentFactory, class_behind
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.metrics import ServerMetrics
from openenv_trl.server.nursery import Nursery
from openenv_trl.server.reaper import Reaped, Reaper
from openenv_trl.server.registry import SessionRegistry
from openenv_trl.server.session import Session, SessionEnd, SessionState
from openenv_trl.server.session_life import SessionLife
from openenv_trl.server.settings import AppSettings
from openenv_trl.server.sweeper import Sweeper
from openenv_trl.types import Action, EnvironmentMetadata, ServerMode
from openenv_trl.wire.actions import deserialize_action, takes_tool_actions

logger = logging.getLogger("openenv_trl.server")

_LINGER_S = 1.0  # of a drained session after its episode, for its client to read the state and to close
_SHUTDOWN_S = 5.0  # for calls that were stopped to end, before the server does


class SessionHost:
    """Opens sessions, within the limit.

    Args:
        factory: Builds one environment; it runs off the event loop, unless its class says ``EXECUTION = "loop"``.
        action_cls: What the data of a step must fit.
        ledger: The slots.
        executor: Where environments are built, closed, and called by those of their hooks that may block.
        settings: How sessions are held.
        session_timeout: The public package's setting; it wins over ``settings.detached_timeout_s``.

    Attributes:
        sessions: All that have a slot, by id.
        metrics: What is counted.
        nursery: Tasks that outlive the connection that began them.
        worker: Which of several server processes this is; None where it is the only one.
        workers: How many there are.
        new_session_id: Makes the id of a session; that of one worker among several tells which.
        starting: Whether what the first session needs is still being made ready.
        draining: Whether new sessions are refused because the server is going to stop.
    """

    def __init__(
        self,
        factory: EnvironmentFactory,
        action_cls: type[Action],
        ledger: SlotLedger,
        executor: Executor,
        *,
        settings: AppSettings | None = None,
        session_timeout: float | None = None,
    ) -> None:
        self._settings = settings = settings or AppSettings()
        self.action_cls = action_cls
        self.validate_any = partial(deserialize_action, action_cls=action_cls)
        self.validate: Callable[[dict[str, Any]], Action] = (
            self.validate_any if takes_tool_actions(action_cls) else action_cls.model_validate
        )
        self.ledger = ledger
        self.executor = executor
        self.builder = EnvironmentBuilder(factory, executor, settings.execution)
        self.step_timeout_s = settings.step_timeout_s
        self.metrics = ServerMetrics()
        self.nursery = Nursery()
        self.sessions = SessionRegistry()
        self.worker: int | None = None
        self.workers = 1
        self.new_session_id: Callable[[], str] = _new_session_id
        self.starting = False
        self.draining = False
        self._factory = factory
        self._admission = Admission(ledger, settings.max_waiting, self.metrics)
        self._reaper = Reaper(settings.idle_timeout_s, session_timeout or settings.detached_timeout_s)
        self._sweeper = Sweeper(self._reaper, self._resting_since, self._reap)
        self._temporary: anyio.CapacityLimiter | None = None
        self._no_sessions: anyio.Event | None = None
        self._departed = Departed()
        self._metadata: EnvironmentMetadata | None = None
        self.warn_of_dropped = DroppedArguments().warn

    @property
    def mode(self) -> ServerMode:
        """What the server is for; each environment is told."""
        return self.builder.mode

    @mode.setter
    def mode(self, mode: ServerMode) -> None:
        self.builder.mode = mode

    @property
    def status(self) -> ServerCapacityStatus:
        """How full the server is."""
        return self.ledger.status

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Be the host of a running application; at its end every session is closed."""
        async with self.nursery.running():
            self.starting = True
            self.nursery.start(self._warm_up)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end_all()
                self.shut_down()
        self._sweeper.stop()

    async def open(self, *, wait_s: float = 0.0, transport: str = "ws", held: bool = True) -> HostedSession:
        """Open a session: take a slot, then build an environment. Whoever opens it closes it.

        Args:
            wait_s: Seconds to wait for a slot, in turn with others that wait.
            transport: What the session is opened over, for the metrics.
            held: Whether a connection holds it, until `release`. One that none holds ends some time after its last
                call.

        Raises:
            SessionCapacityError: No slot was free in that time, or the server is shutting down.
            EnvironmentFactoryError: The factory raised.
            SessionLostError: The session was closed while its environment was built.
        """
        hosted = HostedSession(self, Session(self.new_session_id(), time.monotonic()), transport)
        session_id = hosted.session_id
        await self._make_room(wait_s)
        try:
            await self._admission.take(session_id, wait_s)
        except SessionCapacityError as error:
            self.metrics.session_refused("draining" if self.draining else "capacity")
            logger.info("A session over %s was refused: %s", transport, error, extra=hosted.about("open"))
            raise
        self.sessions.add(hosted)
        self._reaper.add(session_id, time.monotonic(), held=held)
        try:
            await hosted.open()
        except BaseException:
            if hosted.session.state is not SessionState.CLOSED:  # cancelled, with the environment built all the same
                with anyio.CancelScope(shield=True):
                    await hosted.close()
            raise
        if hosted.is_over:
            text = f"Session {session_id} was closed while its environment was built."
            raise hosted.session.lost("open") or SessionLostError(text, phase="connect", session_id=session_id)
        self.metrics.session_opened(transport)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("Session %s opened over %s", session_id, transport, extra=hosted.about("open"))
        self._sweeper.plan()
        return hosted

    @asynccontextmanager
    async def session(self, *, wait_s: float = 0.0, transport: str = "ws") -> AsyncGenerator[HostedSession]:
        """Hold a session: a slot, then an environment. Both are given back at the end, whatever happens.

        Args:
            wait_s: Seconds to wait for a slot, in turn with others that wait.
            transport: What the session is opened over, for the metrics.

        Raises:
            SessionCapacityError: No slot was free in that time, or the server is shutting down.
            EnvironmentFactoryError: The factory raised.
        """
        hosted = await self.open(wait_s=wait_s, transport=transport)
        try:
            yield hosted
        finally:
            with anyio.CancelScope(shield=True):
                await hosted.close()

    @asynccontextmanager
    async def temporary(self) -> AsyncGenerator[HostedSession]:
        """Build an environment outside the limit, for one request. No more at once than there may be sessions.

        Raises:
            EnvironmentFactoryError: The factory raised.
        """
        if self._temporary is None:
            self._temporary = anyio.CapacityLimiter(self.ledger.status.max_sessions)
        async with self._temporary:
            hosted = HostedSession(self, Session(str(uuid.uuid4()), time.monotonic()), "")
            await hosted.open()
            try:
                yield hosted
            finally:
                with anyio.CancelScope(shield=True):
                    await hosted.close()

    def hold(self, session_id: str) -> HostedSession:
        """Take a session for a connection, until `release`. One connection at a time.

        Raises:
            SessionNotFoundError: There is no such session.
            SessionStateError: It is still being opened or being closed, or another connection holds it.
        """
        hosted = self.sessions.find(session_id)
        if hosted.session.state is SessionState.OPENING:
            raise SessionStateError(f"Session {session_id} is still initializing", session_id=session_id)
        if hosted.session.state is SessionState.CLOSING:
            text = f"Session {session_id} is closing"
            raise hosted.session.lost("connect") or SessionStateError(text, session_id=session_id)
        if self._reaper.is_held(session_id):
            text = f"Session {session_id} already has an attached WebSocket"
            raise SessionStateError(text, session_id=session_id)
        self._reaper.hold(session_id)
        self._departed.remove(session_id)
        return hosted

    def release(self, session_id: str, *, timeout_s: float | None = None, broke: bool = False) -> None:
        """The connection that held a session is gone. Nothing happens where the session is gone too.

        Args:
            session_id: The session.
            timeout_s: How long it lives from now on without a call; the detached timeout if None.
            broke: Whether the connection broke. The session then keeps its slot only as long as nobody else wants it,
                after a while in which its client would have come back.
        """
        hosted = self.sessions.get(session_id)
        if hosted is None:
            return
        if broke:
            self._departed.add(session_id, time.monotonic())
        self._reaper.release(session_id, time.monotonic(), timeout_s)
        if self.sessions.takes_wish_to_close(session_id):
            self.nursery.start(hosted.close)
        self._sweeper.plan()

    async def let_go(self, session_id: str) -> None:
        """Like `release`; and where the session was to end with its connection, wait for its end."""
        hosted = self.sessions.get(session_id)
        is_to_end = self.sessions.takes_wish_to_close(session_id)
        self.release(session_id)
        if hosted is not None and is_to_end:
            await hosted.close()

    async def close(self, session_id: str, *, when_released: bool = False) -> bool:
        """End a session, at once or after its running call. Returns whether it has ended.

        Args:
            session_id: The session.
            when_released: Where a connection holds it, end it when that is gone.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        hosted = self.sessions.find(session_id)
        if when_released and self._reaper.is_held(session_id):
            self.sessions.wish_to_close(session_id)
            return False
        await hosted.close()
        return hosted.is_over

    def drain(self) -> None:
        """Take no new sessions and begin no new episodes. Those that run go on until they are done or closed."""
        self.draining = True
        self._admission.close()
        now = time.monotonic()
        for hosted in self.sessions.all():
            if hosted.session.state is SessionState.READY:
                self._reaper.dismiss(hosted.session_id, now)
        self._sweeper.plan()

    async def idle(self) -> None:
        """Wait until there is no session."""
        while len(self.sessions):
            if self._no_sessions is None:
                self._no_sessions = anyio.Event()
            await self._no_sessions.wait()

    async def metadata(self) -> EnvironmentMetadata:
        """Return what the environment says of itself. Where the class speaks for itself, an instance is built once.

        Raises:
            EnvironmentFactoryError: The factory raised.
        """
        found = self._metadata
        if found is None:
            known = class_behind(self._factory)
            if known is not None and known.get_metadata is AnyEnvironment.get_metadata:
                found = default_metadata(known)
            else:
                async with self.temporary() as hosted:
                    found = cast("EnvironmentMetadata", await hosted.call_method("get_metadata"))
            self._metadata = found
        return found

    def shut_down(self) -> None:
        """Let go of the threads."""
        self.executor.shut_down()

    # ------------------------------------------------------------------ what a session tells its host

    def forget(self, hosted: SessionLife) -> None:
        """A session has ended: its slot is free."""
        session_id = hosted.session_id
        if not self.sessions.remove(session_id):
            return  # a temporary one
        self._reaper.forget(session_id)
        self._departed.remove(session_id)
        end = hosted.session.end or SessionEnd.CLOSED
        if end is SessionEnd.OPEN_FAILED:
            self.metrics.session_refused("factory")
        else:
            self.metrics.session_closed(end.value)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("Session %s ended: %s", session_id, end.value, extra=hosted.about())
        self.ledger.release(session_id)
        if self._no_sessions is not None and not len(self.sessions):
            waiting, self._no_sessions = self._no_sessions, None
            waiting.set()

    def dismiss(self, hosted: SessionLife) -> None:
        """A session's episode ended while the server drains: it ends soon."""
        if self.sessions.get(hosted.session_id) is hosted:
            self._reaper.dismiss(hosted.session_id, time.monotonic() + _LINGER_S)
            self._sweeper.plan()

    def call_was_abandoned(self, environment_name: str, session_id: str, about: dict[str, str]) -> None:
        """A thread was left behind with a call that did not end; ``about`` is the ``extra`` of the log's record."""
        self.metrics.call_abandoned()
        logger.warning(
            "Session %s: the %s of %s did not end in time. Its thread cannot be stopped and was left behind. Set "
            'EXECUTION = "process" on the class: then its process is killed.',
            session_id,
            about["call"],
            environment_name,
            extra=about,
        )

    # ------------------------------------------------------------------ room for another

    async def _make_room(self, wait_s: float) -> None:
        """Where no slot is free, end the session whose client has been gone the longest, if it is not coming back."""
        if not len(self._departed) or not self.status.is_at_capacity:
            return
        found = self._departed.gives_way(time.monotonic(), self._rests)
        if found is None:
            return
        session_id, in_s = found
        if in_s <= 0:
            await self.sessions.find(session_id).lose(SessionEnd.DETACHED, "its client was gone, and another came")
        elif wait_s > 0:
            self.nursery.start(self._make_room_later, in_s)

    def _rests(self, session_id: str) -> bool:
        hosted = self.sessions.get(session_id)
        return hosted is not None and hosted.session.is_resting

    async def _make_room_later(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        if self._admission.has_waiters:
            await self._make_room(math.inf)

    async def _warm_up(self) -> None:
        try:
            await self.builder.warm_up()
        finally:
            self.starting = False

    # ------------------------------------------------------------------ the end of sessions

    def _resting_since(self, session_id: str) -> float | None:
        hosted = self.sessions.get(session_id)
        if hosted is None or not hosted.session.is_resting or hosted.is_waited_for:
            return None
        return hosted.session.resting_since

    def _reap(self, reaped: Reaped) -> None:
        hosted = self.sessions.get(reaped.session_id)
        if hosted is not None:
            self.metrics.session_reaped()
            level = logging.INFO if reaped.end is SessionEnd.DRAINED else logging.WARNING
            logger.log(level, "Session %s is ended: %s", hosted.session_id, reaped.because, extra=hosted.about())
            self.nursery.start(hosted.lose, reaped.end, reaped.because)

    async def _end_all(self) -> None:
        async with anyio.create_task_group() as tasks:
            for hosted in self.sessions.all():
                tasks.start_soon(hosted.stop, SessionEnd.SHUTDOWN, "the server has shut down")
        with anyio.move_on_after(_SHUTDOWN_S):  # of calls that end in their own callers' tasks
            await self.idle()


def _new_session_id() -> str:
    return str(uuid.uuid4())
