"""``/ws``: the OpenEnv protocol over a WebSocket, one session for each connection.

The handshake is accepted first; then the session is opened, or refused with one error frame. Two tasks serve a
connection: one reads, so that a client's leaving is seen at once and an asynchronous hook that it waited for is
cancelled; the other answers. The socket is closed when the session is: a client that saw the closing finds the slot
free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio

from openenv_trl.errors import EnvironmentFactoryError, SessionCapacityError
from openenv_trl.server.dialogue import answer
from openenv_trl.server.host import SessionHost
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.wire.faults import Fault, WSErrorCode, fault_of
from openenv_trl.wire.frames import binary_fault

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger("openenv_trl.server")

_PIPELINED_MESSAGES = 16  # read ahead of the answers; then the client's sending stalls


class WebSocketEndpoint:
    """The ASGI application behind ``/ws``."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection, to its end."""
        await receive()
        await send({"type": "websocket.accept"})
        connection = _Connection(receive, send)
        try:
            async with self._host.session() as session:
                await connection.serve(session)
        except (SessionCapacityError, EnvironmentFactoryError) as error:
            await connection.send(fault_of(error).encode())
        except Exception:  # boundary: what is not foreseen is a fault of the server, and is said so
            logger.exception("A session ended by a fault of the server")
            text = "The server failed and ended the session; its log tells why."
            await connection.send(Fault(text, WSErrorCode.SESSION_ERROR.value).encode())
        await connection.close()


class _Connection:
    """The socket's two ends."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._gone = False

    async def serve(self, session: HostedSession) -> None:
        """Answer until the client closes the session or is gone."""
        # asyncio's queue, as uvicorn's own: for each message it costs less than a memory stream of anyio's.
        messages: asyncio.Queue[str | None] = asyncio.Queue(_PIPELINED_MESSAGES)
        async with anyio.create_task_group() as tasks:
            # Both in tasks of their own: each wake-up of this one would go through all of the framework's layers.
            tasks.start_soon(self._read_all, messages, tasks.cancel_scope)
            tasks.start_soon(self._answer_all, session, messages, tasks.cancel_scope)

    async def send(self, frame: bytes) -> None:
        """Send a text message; nothing where the client is gone."""
        if self._gone:
            return
        try:
            await self._send({"type": "websocket.send", "text": frame.decode()})
        except OSError:
            self._gone = True

    async def close(self) -> None:
        """Close the socket; nothing where the client is gone."""
        if self._gone:
            return
        try:
            await self._send({"type": "websocket.close", "code": 1000})
        except OSError:
            self._gone = True

    async def _read_all(self, messages: asyncio.Queue[str | None], scope: anyio.CancelScope) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._gone = True
                scope.cancel()
                return
            await messages.put(message.get("text"))

    async def _answer_all(
        self, session: HostedSession, messages: asyncio.Queue[str | None], scope: anyio.CancelScope
    ) -> None:
        while True:
            text = await messages.get()
            frame = binary_fault().encode() if text is None else await answer(session, text)
            if frame is None:
                break
            await self.send(frame)
        scope.cancel()
