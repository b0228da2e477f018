"""A client's WebSocket, by callbacks: whole messages in, whole messages out. The C library picows does the framing.

Promises: fragments come together as one message; a message longer than the limit ends the socket and says which
setting to raise; a dead peer is noticed, and one that answers is kept; `on_closed` is the last call, comes once, and
says how the socket ended. All of it on the event loop that opened the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSProtocolError, WSTransport

from openenv_trl.client.heartbeat import Heartbeat, Pulse

if TYPE_CHECKING:
    from picows.picows import WSCloseHandshake

_CLOSE_S = 2.0  # for the closing handshake; then the connection is cut
_TEXT, _BINARY, _CONTINUATION, _CLOSE = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION, WSMsgType.CLOSE
_TOO_BIG = 1009
_FAREWELL = b"\x88\x82\x00\x00\x00\x00\x03\xe8"  # a closing frame with code 1000, masked with zeros
_CODES = {
    0: "the server closed it",  # without a code
    1000: "the server closed it",
    1001: "the server is going away",
    1012: "the server is shutting down",
}

OnMessage = Callable[[bytes, bool], None]
"""Takes a message, and whether it is text."""
OnClosed = Callable[[str], None]
"""Takes how the socket ended, as the last half of a sentence."""


class SocketClosed(Exception):
    """The socket's end. The text says how it ended, as the last half of a sentence."""


@dataclass(frozen=True)
class SocketSettings:
    """How a socket is opened and kept.

    Attributes:
        connect_timeout_s: Seconds for the connection and its handshake.
        max_message_bytes: The longest message taken.
        ping_interval_s: Seconds of silence before a ping; None for no pings.
        ping_timeout_s: Seconds for an answer to it; None for any time.
        headers: Sent with the handshake.
        subprotocols: What to offer to speak, best first.
    """

    connect_timeout_s: float
    max_message_bytes: int
    ping_interval_s: float | None
    ping_timeout_s: float | None
    headers: Mapping[str, str] | None = field(repr=False)  # a token may be among them
    subprotocols: tuple[str, ...] = ()


class MessageSocket(WSListener):
    """One open socket. Made by `openenv_trl.client.handshake.open_message_socket`."""

    def __init__(self, settings: SocketSettings, on_message: OnMessage, on_closed: OnClosed) -> None:
        self.subprotocol: str | None = None
        """What the server chose to speak, of what was offered."""
        self.on_message = on_message
        self.on_closed = on_closed
        self._limit = settings.max_message_bytes
        interval_s = settings.ping_interval_s
        self._heartbeat = None if interval_s is None else Heartbeat(interval_s, settings.ping_timeout_s)
        self._heard = False
        self._transport: WSTransport | None = None
        self._abandoned = False
        self._ended = False
        self._ending = ""  # why this side ends it, where it does
        self._timer: asyncio.TimerHandle | None = None
        self._parts: list[bytes] = []
        self._parts_are: WSMsgType | None = None
        self._parts_bytes = 0
        self._writable: asyncio.Future[None] | None = None
        self._reading_paused = False

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it yet, as far as is known here."""
        return not self._ended and self._transport is not None and not self._transport.is_close_frame_sent

    @property
    def writing_paused(self) -> bool:
        """Whether the server takes messages more slowly than they are sent. Sending goes on, into memory."""
        return self._writable is not None

    async def writable(self) -> None:
        """Wait until the server has caught up; returns also when the socket ends."""
        while self._writable is not None:
            await asyncio.shield(self._writable)  # others may wait for it too

    def send(self, message: bytes, *, text: bool) -> None:
        """Send a message.

        Raises:
            SocketClosed: The socket has ended.
        """
        transport = self._transport
        if self._ended or transport is None or transport.is_close_frame_sent:
            raise SocketClosed(self._ending or "the connection is closing")
        if transport.underlying_transport.is_closing():  # broken just now: `on_closed` comes soon
            raise SocketClosed("the connection broke")
        transport.send(_TEXT if text else _BINARY, message)

    def close(self) -> None:
        """Close the socket in good order; `on_closed` tells when that is done."""
        transport = self._transport
        if transport is None or self._ended:
            return
        self._end("this client closed it")
        transport.send_close(WSCloseCode.OK)
        self._timer = asyncio.get_running_loop().call_later(_CLOSE_S, self.abort)

    def abort(self) -> None:
        """Cut the connection at once, without waiting for anything; `on_closed` comes soon after."""
        self._end("this client cut the connection")
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    def farewell(self) -> None:
        """Tell the server that this side is going, where the event loop cannot: it has ended, or will not go on.

        In the event loop's own thread, or when it is closed. From another one nothing may be said, as it is not known
        there whether half a message was written; the server then learns it from the socket's end.
        """
        transport = self._transport
        if transport is None or self._ended or transport.is_secure:
            return
        underlying = transport.underlying_transport
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # it is closed already, or another thread's
            if not underlying.get_write_buffer_size():  # else there is half a message before it
                os.write(underlying.get_extra_info("socket").fileno(), _FAREWELL)

    def abandon(self) -> None:
        """Nobody wants the socket any more: cut the connection, now or as soon as it is there, and tell nobody."""
        self._abandoned = True
        self.on_message, self.on_closed = _ignore_message, _ignore_end
        self.abort()

    def pause_reading(self) -> None:
        """Take no further messages for now: the server's sending stalls."""
        if self._transport is not None and not self._ended and not self._reading_paused:
            self._reading_paused = True
            self._transport.underlying_transport.pause_reading()

    def resume_reading(self) -> None:
        """Take messages again."""
        if self._transport is not None and self._reading_paused:
            self._reading_paused = False
            self._transport.underlying_transport.resume_reading()

    # What picows calls.

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Take over the connection; picows calls this after the handshake."""
        self._transport = transport
        if self._abandoned:
            self.abort()
        elif self._heartbeat is not None:
            loop = asyncio.get_running_loop()
            self._heartbeat.start(loop.time())
            self._timer = loop.call_at(self._heartbeat.wake_at, self._beat)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Take a frame. picows has answered pings already."""
        self._heard = True
        kind = frame.msg_type
        if kind is _CLOSE:
            self._end(_how(transport))
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
            return
        # picows refuses a message before it hands over the one before, and then goes on reading for a moment.
        if self._ended or frame.payload_size > self._limit:
            return
        if kind is not _TEXT and kind is not _BINARY and kind is not _CONTINUATION:
            return
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "it uses an extension that nobody agreed on")
        if frame.fin and self._parts_are is None and kind is not _CONTINUATION:
            self.on_message(frame.get_payload_as_bytes(), kind is _TEXT)
        else:
            self._gather(kind, frame)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The connection is gone."""
        self._end(_how(transport))
        self._stop_timer()
        self.resume_writing()
        self.on_closed(self._ending)

    def pause_writing(self) -> None:
        """The server has fallen behind."""
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The server has caught up."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _gather(self, kind: WSMsgType, frame: WSFrame) -> None:
        if (kind is _CONTINUATION) is (self._parts_are is None):
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "its fragments are out of order")
        if self._parts_are is None:
            self._parts_are = kind
        self._parts.append(frame.get_payload_as_bytes())
        self._parts_bytes += frame.payload_size
        if self._parts_bytes > self._limit:
            reason = f"{self._parts_bytes} bytes and more, of {self._limit} allowed"
            raise WSProtocolError(WSCloseCode.MESSAGE_TOO_BIG, reason)
        if frame.fin:
            message, is_text = b"".join(self._parts), self._parts_are is _TEXT
            self._parts, self._parts_are, self._parts_bytes = [], None, 0
            self.on_message(message, is_text)

    def _beat(self) -> None:
        heartbeat, transport = self._heartbeat, self._transport
        if heartbeat is None or transport is None or self._ended:
            return
        loop = asyncio.get_running_loop()
        heard, self._heard = self._heard or self._reading_paused, False
        pulse = heartbeat.wake(loop.time(), heard)
        if pulse is Pulse.DEAD:
            self._end("the server did not answer pings")
            transport.disconnect(graceful=False)
            return
        if pulse is Pulse.PING:
            transport.send_ping()
        self._timer = loop.call_at(heartbeat.wake_at, self._beat)

    def _end(self, how: str) -> None:
        if not self._ended:
            self._ended, self._ending = True, how
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ignore_message(message: bytes, text: bool) -> None:
    pass


def _ignore_end(how: str) -> None:
    pass


def _how(transport: WSTransport) -> str:
    handshake = cast("WSCloseHandshake | None", transport.close_handshake)  # None is missing in picows' types
    if handshake is None:
        return "the connection broke"
    sent, received = handshake.sent, handshake.recv
    if sent is not None and not handshake.recv_then_sent:  # only a fault of the server's makes this side begin
        if sent.code.value == _TOO_BIG:
            return f"the server sent a message longer than max_message_size_mb allows ({sent.reason})"
        return f"the server broke the WebSocket protocol ({sent.reason})"
    if received is None:
        return "the connection broke while it was closing"
    code = received.code.value
    text = _CODES.get(code, f"the server closed it with code {code}")
    reason = (received.reason or "").rstrip(".")
    return f"{text} ({reason})" if reason and reason not in text else text
