"""``/ws``: one path, two wires. A peer that offers the native subprotocol gets it; any other speaks OpenEnv's.

The OpenEnv protocol: one session for each connection. The handshake is accepted first; then the session is opened, or
refused with one error frame. A client's leaving is seen at once: an asynchronous hook that it waited for is cancelled.
The socket is closed after the session is: a client that saw the closing finds the slot free.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import anyio

from openenv_trl.errors import EnvironmentFactoryError, OpenEnvError, SessionCapacityError, SessionLostError
from openenv_trl.server.asgi_channel import Message, Receive, Send, carry, handshake_of
from openenv_trl.server.channel import Accepted, Channel, Gate, Handshake
from openenv_trl.server.dialogue import answer, too_long
from openenv_trl.server.host import SessionHost
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.native_dialogue import NativeDialogue
from openenv_trl.server.native_sessions import NativeSessions
from openenv_trl.server.session import SessionEnd
from openenv_trl.server.settings import AppSettings
from openenv_trl.wire.faults import Fault, WSErrorCode, fault_of
from openenv_trl.wire.frames import WAIT_HEADER, binary_fault
from openenv_trl.wire.native_frames import SUBPROTOCOL

logger = logging.getLogger("openenv_trl.server")

_PIPELINED_MESSAGES = 16  # read ahead of the answers; then the client's sending stalls
_LONGEST_WAIT_S = 3600.0  # for a slot, whatever the client asks
# What a socket is closed with where the server ends its session by itself (RFC 6455: service restart, going away).
_CODES = {SessionEnd.DRAINED: 1012, SessionEnd.SHUTDOWN: 1012, SessionEnd.IDLE: 1001, SessionEnd.DETACHED: 1001}


class WebSocketEndpoint:
    """What stands behind ``/ws``: an ASGI application, and a door for servers that carry sockets themselves."""

    def __init__(self, host: SessionHost, settings: AppSettings) -> None:
        self._host = host
        self._native = NativeSessions(host, settings)
        self._max_message_bytes = settings.max_message_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection of an ASGI server, to its end."""
        await carry(self.accept(handshake_of(scope)), receive, send)

    def accept(self, handshake: Handshake) -> Accepted:
        """Open a dialogue for a peer."""
        if SUBPROTOCOL in handshake.subprotocols and "session_id" not in handshake.query:
            return Accepted(NativeDialogue(self._native), SUBPROTOCOL)
        return Accepted(OpenEnvDialogue(self._host, handshake, self._max_message_bytes))


class OpenEnvDialogue:
    """One connection of the OpenEnv protocol."""

    def __init__(self, host: SessionHost, handshake: Handshake, max_message_bytes: int) -> None:
        self._host = host
        self._max_message_bytes = max_message_bytes
        self._wait_s = _seconds(handshake.headers.get(WAIT_HEADER))
        self._session_id = handshake.query.get("session_id")
        self._messages: deque[str | bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._writing = Gate()
        self._gone = False
        self._channel: Channel | None = None
        self._scope: anyio.CancelScope | None = None

    def opened(self, channel: Channel) -> None:
        """See `Consumer`."""
        self._channel = channel

    def received(self, message: str | bytes) -> None:
        """See `Consumer`."""
        self._messages.append(message)
        if len(self._messages) >= _PIPELINED_MESSAGES and self._channel is not None and not self._reading_paused:
            self._reading_paused = True
            self._channel.pause_reading()
        self._wake()

    def writing_paused(self) -> None:
        """See `Consumer`."""
        self._writing.shut()

    def writing_resumed(self) -> None:
        """See `Consumer`."""
        self._writing.open()

    def closed(self, code: int) -> None:
        """See `Consumer`."""
        self._gone = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """See `Consumer`."""
        channel = self._channel
        assert channel is not None, "a dialogue runs after its socket was opened"
        with anyio.CancelScope() as self._scope:
            if self._gone:
                return
            try:
                async with self._session() as session:
                    await self._answer_all(session, channel)
            except OpenEnvError as error:
                channel.send(self.refused(error), text=True)
            except Exception:  # boundary: what is not foreseen is a fault of the server, and is said so
                logger.exception("A session ended by a fault of the server")
                text = "The server failed and ended the session; its log tells why."
                channel.send(self.refused(SessionLostError(text)), text=True)
        channel.close()

    async def answer(self, session: HostedSession, message: str | bytes) -> bytes | None:
        """Return the answer to a message; None where it asks for the end of the session."""
        return await answer(session, message) if isinstance(message, str) else binary_fault().encode()

    def refused(self, error: OpenEnvError) -> bytes:
        """Return what a peer is told that has no session, or lost it by the server's fault."""
        if isinstance(error, SessionCapacityError | EnvironmentFactoryError):
            return fault_of(error).encode()
        return Fault(str(error), WSErrorCode.SESSION_ERROR.value).encode()

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[HostedSession]:
        if self._session_id is None:
            async with self._host.session(wait_s=self._wait_s) as session:
                yield session
            return
        session = self._host.hold(self._session_id)
        try:
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await self._host.let_go(self._session_id)

    async def _answer_all(self, session: HostedSession, channel: Channel) -> None:
        tell = partial(self._session_ended, session, channel)
        session.watch_end(tell)
        try:
            await self._answer_each(session, channel)
        finally:
            session.watch_end_no_more(tell)

    async def _answer_each(self, session: HostedSession, channel: Channel) -> None:
        while True:
            message = self._messages.popleft() if self._messages else await self._next()
            if self._reading_paused and len(self._messages) < _PIPELINED_MESSAGES // 2:
                self._reading_paused = False
                channel.resume_reading()
            frame = await self.answer(session, message)
            if frame is None:
                return
            if len(frame) > self._max_message_bytes:
                frame = too_long(len(frame), self._max_message_bytes, session.about()).encode()
            channel.send(frame, text=True)
            if session.is_over:
                return
            if not self._writing.is_open:
                await self._caught_up()

    def _session_ended(self, session: HostedSession, channel: Channel) -> None:
        """The server ended the session by itself: its client learns that at once, and why."""
        end, lost = session.session.end, session.session.lost("")
        if end is not None and end in _CODES and lost is not None:
            channel.close(_CODES[end], str(lost))
            if self._scope is not None:
                self._scope.cancel()

    async def _next(self) -> str | bytes:
        while not self._messages:
            await self._wait()
        return self._messages.popleft()

    async def _caught_up(self) -> None:
        while not self._writing.is_open:
            self._writing.when_open(self._wake)
            await self._wait()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _seconds(text: str | None) -> float:
    """The wait that a client asked for; none where it is no number."""
    try:
        seconds = float(text or 0.0)
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_WAIT_S) if seconds == seconds else 0.0
