"""The socket under a client, behind a seam: `Socket` is all that a client asks of it.

Source of the settings: the public package's client (message limit, pings, no proxy for loopback).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from openenv_trl.alarm import Alarm
from openenv_trl.client.address import ServerAddress
from openenv_trl.client.handshake import open_message_socket
from openenv_trl.client.message_socket import MessageSocket, SocketClosed, SocketSettings

__all__ = [
    "AwaitedSocket",
    "Deadline",
    "Socket",
    "SocketClosed",
    "SocketSettings",
    "open_message_socket",
    "open_socket",
]

_FOREVER_S = 1e9  # timers take no infinity
_WAITING_MOST = 64  # messages that nobody has taken yet; then the server's sending stalls


class Socket(Protocol):
    """Messages, in order, both ways; they are sent as text."""

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it yet, as far as is known here."""
        ...

    @property
    def subprotocol(self) -> str | None:
        """What the server chose to speak, of what was offered."""
        ...

    async def send(self, text: bytes) -> None:
        """Send a text message, or raise `SocketClosed`."""
        ...

    async def receive(self) -> bytes:
        """Return the next message, also one that came before the socket closed; or raise `SocketClosed`."""
        ...

    async def close(self) -> None:
        """Close the socket in good order."""
        ...

    def abort(self) -> None:
        """Close the socket at once, without waiting for anything."""
        ...

    def abort_after(self, seconds: float) -> Deadline:
        """Close the socket at once when so many seconds have passed, unless the deadline is lifted before.

        There is one deadline at a time: a new one takes the place of the last.
        """
        ...


class Deadline(Protocol):
    """A moment at which a socket is closed."""

    @property
    def passed(self) -> bool:
        """Whether it came."""
        ...

    def lift(self) -> None:
        """Let the socket live on."""
        ...


async def open_socket(address: ServerAddress, settings: SocketSettings) -> Socket:
    """Open a socket to the server. Raises what `open_message_socket` does."""
    socket = AwaitedSocket()
    socket.carry(await open_message_socket(address, settings, socket.take, socket.end))
    return socket


class AwaitedSocket:
    """A message socket whose messages are awaited, by one task at a time. See `Socket`."""

    def __init__(self) -> None:
        self._messages: MessageSocket | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._receiver: asyncio.Future[bytes] | None = None
        self._ended: str | None = None
        self._end = self._loop.create_future()
        self._deadline = _AbortDeadline(self.abort)

    @property
    def is_open(self) -> bool:
        """See `Socket`."""
        return self._messages is not None and self._messages.is_open

    @property
    def subprotocol(self) -> str | None:
        """See `Socket`."""
        return self._messages.subprotocol if self._messages else None

    async def send(self, text: bytes) -> None:
        """See `Socket`."""
        messages = self._messages
        assert messages is not None, "an opened socket carries messages"
        messages.send(text, text=True)
        if messages.writing_paused:
            await messages.writable()

    async def receive(self) -> bytes:
        """See `Socket`."""
        if self._waiting:
            if len(self._waiting) == _WAITING_MOST and self._messages is not None:
                self._messages.resume_reading()
            return self._waiting.popleft()
        if self._ended is not None:
            raise SocketClosed(self._ended)
        self._receiver = self._loop.create_future()
        try:
            return await self._receiver
        finally:
            self._receiver = None

    async def close(self) -> None:
        """See `Socket`."""
        if self._messages is not None:
            self._messages.close()
            await asyncio.shield(self._end)

    def abort(self) -> None:
        """See `Socket`."""
        if self._messages is not None:
            self._messages.abort()

    def abort_after(self, seconds: float) -> Deadline:
        """See `Socket`."""
        return self._deadline.set(min(seconds, _FOREVER_S))

    def carry(self, messages: MessageSocket) -> None:
        """Take the opened socket."""
        self._messages = messages

    def hand_over(self) -> tuple[list[bytes], str | None]:
        """Return the messages that nobody took, and how the socket ended if it has: another takes them from here on."""
        return list(self._waiting), self._ended

    def take(self, message: bytes, text: bool) -> None:
        """Take a message that came."""
        receiver = self._receiver
        if receiver is not None and not receiver.done():
            receiver.set_result(message)
            return
        self._waiting.append(message)
        if len(self._waiting) == _WAITING_MOST and self._messages is not None:
            self._messages.pause_reading()

    def end(self, how: str) -> None:
        """Take the socket's end."""
        self._ended = how
        self._deadline.stop()
        self._end.set_result(None)
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_exception(SocketClosed(how))


class _AbortDeadline:
    """A `Deadline` that is set and lifted for each call."""

    def __init__(self, abort: Callable[[], None]) -> None:
        self.passed = False
        self._abort = abort
        self._alarm = Alarm(self._ring)

    def set(self, seconds: float) -> _AbortDeadline:
        self.passed = False
        self._alarm.set(time.monotonic() + seconds)
        return self

    def lift(self) -> None:
        self._alarm.clear()

    def stop(self) -> None:
        self._alarm.stop()

    def _ring(self) -> None:
        self.passed = True
        self._abort()
