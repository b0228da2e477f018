"""A dialogue carried by any ASGI server's WebSocket."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import anyio

from openenv_trl.server.channel import Accepted, Consumer, Handshake

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_HIGH_BYTES = 256 * 1024  # kept for a slow peer before its dialogue is told to stop; below the low mark it goes on
_LOW_BYTES = 64 * 1024
_BROKE = 1006
_NO_CODE = 1005


def handshake_of(scope: Message) -> Handshake:
    """Return what the peer asked for, from an ASGI WebSocket scope."""
    client = scope.get("client")
    return Handshake(
        path=scope["path"],
        query=dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)),
        headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope.get("headers", ())},
        subprotocols=tuple(scope.get("subprotocols", ())),
        client=f"{client[0]}:{client[1]}" if client else "",
    )


async def carry(accepted: Accepted, receive: Receive, send: Send) -> None:
    """Accept the socket and carry the dialogue to its end."""
    await receive()
    await send({"type": "websocket.accept", "subprotocol": accepted.subprotocol})
    channel = _AsgiChannel(accepted.consumer, send)
    accepted.consumer.opened(channel)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.send_all, tasks.cancel_scope)
        tasks.start_soon(_read_all, channel, accepted.consumer, receive, tasks.cancel_scope)
        with anyio.CancelScope(shield=True):  # a dialogue ends by itself once it is told that its peer is gone
            await accepted.consumer.run()
        channel.close()


async def _read_all(channel: _AsgiChannel, consumer: Consumer, receive: Receive, scope: anyio.CancelScope) -> None:
    while True:
        if channel.reading is not None:
            await channel.reading.wait()
        message = await receive()
        if message["type"] == "websocket.disconnect":
            code = message.get("code", _BROKE)
            channel.lost(_BROKE if code == _NO_CODE else code)  # ASGI servers tell a broken connection so, too
            scope.cancel()
            return
        text = message.get("text")
        consumer.received(message["bytes"] if text is None else text)


class _AsgiChannel:
    """What is sent waits in a queue for the one task that may await the server's ``send``."""

    def __init__(self, consumer: Consumer, send: Send) -> None:
        self.reading: anyio.Event | None = None
        self._consumer = consumer
        self._send = send
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._wanted = anyio.Event()
        self._open = True
        self._paused = False

    @property
    def is_open(self) -> bool:
        return self._open

    def send(self, message: bytes, *, text: bool) -> None:
        if not self._open:
            return
        self._queued_bytes += len(message)
        part: Message = {"text": message.decode()} if text else {"bytes": message}
        self._queue.append({"type": "websocket.send", **part})
        self._wanted.set()
        if self._queued_bytes > _HIGH_BYTES and not self._paused:
            self._paused = True
            self._consumer.writing_paused()

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self._open:
            self._open = False
            self._queue.append({"type": "websocket.close", "code": code, "reason": reason})
            self._wanted.set()

    def pause_reading(self) -> None:
        if self.reading is None:
            self.reading = anyio.Event()

    def resume_reading(self) -> None:
        if self.reading is not None:
            self.reading.set()
            self.reading = None

    def lost(self, code: int) -> None:
        """The peer is gone."""
        self._open = False
        self._queue.clear()
        self._consumer.closed(code)

    async def send_all(self, scope: anyio.CancelScope) -> None:
        """Send what is queued until the socket is closed."""
        while True:
            while self._queue:
                message = self._queue.popleft()
                try:
                    await self._send(message)
                except OSError:
                    self.lost(_BROKE)
                    scope.cancel()
                    return
                if message["type"] == "websocket.close":
                    self._consumer.closed(message["code"])
                    scope.cancel()
                    return
                self._queued_bytes -= len(message.get("text") or message.get("bytes") or "")
                if self._paused and self._queued_bytes < _LOW_BYTES:
                    self._paused = False
                    self._consumer.writing_resumed()
            self._wanted = anyio.Event()
            await self._wanted.wait()
