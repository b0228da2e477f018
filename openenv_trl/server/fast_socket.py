"""WebSockets of this package's own server process: uvicorn's HTTP, and picows under the sockets that need speed.

uvicorn hands every upgrade to `FastWebSocketProtocol`. Where the application has a door at the path
(``app.state.doors``), the dialogue behind it is carried without ASGI, whose queue and tasks cost several times what a
step does; any other path goes to uvicorn's own protocol. Both ways lead to the same dialogues.

Source of the limits: RFC 6455 (codes 1002, 1007, 1009), and uvicorn's own pings (every 20 s, 20 s for the answer).
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import picows
from picows.picows import WSProtocol  # pyright: ignore[reportAttributeAccessIssue] - beside the public factories
from starlette.middleware.cors import CORSMiddleware

from openenv_trl.server.channel import Accepted, Consumer, Door, Handshake
from openenv_trl.server.nursery import Nursery

_HANDSHAKE_S = 5.0
_MOST_COPIED_BYTES = 8192  # of a message that picows copies to send it
_MOST_HEADER_BYTES = 14
_CLOSE_S = 2.0  # for the peer's half of the closing handshake
_READ_BUFFER_BYTES = 8 * 1024  # at first; it doubles as messages need

_logger = logging.getLogger("openenv_trl.server.sockets")
_logger.setLevel(logging.WARNING)  # picows tells of each connection; a trainer opens thousands
_adapter = logging.LoggerAdapter(_logger, {})  # an adapter: picows would make a logger of its own for each connection


@dataclass(frozen=True)
class _Fast:
    """What of an application is needed to carry its sockets."""

    doors: Mapping[str, Door]
    nursery: Nursery
    max_message_bytes: int
    ping_interval_s: float
    access: Any


class FastWebSocketProtocol(asyncio.Protocol):
    """uvicorn's ``ws_protocol_class``: chooses who carries a socket, and passes it on."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._transport: Any = None
        self._inner: Any = None
        self._channel: _PicowsChannel | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket, after uvicorn has read the request's head."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """The request's head, as uvicorn writes it again; then whatever comes before the socket is passed on."""
        if self._inner is None:
            fast = _fast_parts(self._config.app)
            handshake = _handshake(data, self._transport)
            door = fast.doors.get(handshake.path) if fast is not None else None
            if fast is None or door is None:
                self._inner = self._uvicorns_own()
            else:
                self._inner = self._picows(fast, handshake, door)
            self._inner.connection_made(self._transport)
            # uvicorn sets this object as the transport's protocol once more when this call returns.
            asyncio.get_running_loop().call_soon(self._pass_on)
        _feed(self._inner, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket ended before it was passed on."""
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """The peer sends nothing more."""
        return self._inner.eof_received() if self._inner is not None else None

    def shutdown(self) -> None:
        """Uvicorn asks the connection to end."""
        if self._channel is not None:
            self._channel.close(1012, "the server is shutting down")
        else:
            self._transport.close()

    def _uvicorns_own(self) -> Any:
        from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

        assert AutoWebSocketsProtocol is not None, "the websockets package is a dependency"
        return AutoWebSocketsProtocol(config=self._config, server_state=self._server_state, app_state=self._app_state)

    def _picows(self, fast: _Fast, handshake: Handshake, door: Door) -> Any:
        def answer(_request: picows.WSUpgradeRequest) -> picows.WSUpgradeResponseWithListener:
            refusal = fast.access.check(handshake.path, handshake.headers, handshake.query) if fast.access else None
            if refusal is not None:
                return _refused(refusal)
            if handshake.headers.get("sec-websocket-version") != "13":
                text = b"This server speaks version 13 of the WebSocket protocol."
                known = {"Sec-WebSocket-Version": "13", "Content-Type": "text/plain"}
                response = picows.WSUpgradeResponse.create_error_response(426, text, known)
                return picows.WSUpgradeResponseWithListener(response, None)
            accepted = door(handshake)
            channel = self._channel = _PicowsChannel(accepted, fast.nursery, fast.max_message_bytes, self._forget)
            self._server_state.connections.add(self)
            headers = {"Sec-WebSocket-Protocol": accepted.subprotocol} if accepted.subprotocol else None
            return picows.WSUpgradeResponseWithListener(picows.WSUpgradeResponse.create_101_response(headers), channel)

        return WSProtocol(
            None,
            None,
            False,
            answer,
            _adapter,
            True,
            _HANDSHAKE_S,
            True,
            fast.ping_interval_s,
            fast.ping_interval_s,
            picows.WSAutoPingStrategy.PING_WHEN_IDLE,
            True,
            fast.max_message_bytes,
            None,
            _READ_BUFFER_BYTES,
        )

    def _forget(self) -> None:
        self._server_state.connections.discard(self)
        self._inner = self._channel = None

    def _pass_on(self) -> None:
        if self._inner is not None and not self._transport.is_closing():
            # A transport decides how it reads when it starts to: stopped in between, it decides again.
            self._transport.pause_reading()
            self._transport.set_protocol(self._inner)
            self._transport.resume_reading()


class _PicowsChannel(picows.WSListener):
    """A channel and the listener that picows calls."""

    def __init__(self, accepted: Accepted, nursery: Nursery, max_message_bytes: int, forget: Any) -> None:
        super().__init__()
        self._consumer: Consumer = accepted.consumer
        self._nursery = nursery
        self._max_message_bytes = max_message_bytes
        self._forget = forget
        self._transport: Any = None
        # Fragments, put together at once: a list of them would cost fifty times its bytes where each has but one.
        self._parts: bytearray | None = None
        self._parts_count = 0
        self._parts_are_text = False
        self._closing = False
        self._code = 1006
        self._reading = True
        self._wanted = True
        self._stuck = False
        self._left = 0

    @property
    def is_open(self) -> bool:
        return not self._closing

    def send(self, message: bytes, *, text: bool) -> None:
        if self._closing:
            return
        kind = _TEXT if text else _BINARY
        if len(message) <= _MOST_COPIED_BYTES:
            self._transport.send(kind, message)
        else:
            # picows would hand the event loop its own header's memory, which the next message overwrites where the
            # loop has not sent it yet.
            framed = bytearray(_MOST_HEADER_BYTES)
            framed += message
            self._transport.send_reuse_external_bytearray(kind, framed, _MOST_HEADER_BYTES)

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self._closing:
            return
        self._closing = True
        self._code = code
        self._transport.send_close(code, reason.encode()[:123])
        self.resume_reading()
        asyncio.get_running_loop().call_later(_CLOSE_S, self._transport.disconnect, False)

    def pause_reading(self) -> None:
        self._wanted = False
        self._read_or_not()

    def resume_reading(self) -> None:
        self._wanted = True
        self._read_or_not()

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        self._transport = transport
        self._consumer.opened(self)
        self._nursery.start(self._run)

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        kind = frame.msg_type
        if self._closing:
            if kind == _CLOSE:
                transport.disconnect()
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(1002, "a reserved bit without an extension that uses it")
        elif frame.fin and kind == _TEXT and self._parts is None:
            self._text(frame.get_payload_as_bytes())
        elif frame.fin and kind == _BINARY and self._parts is None:
            self._consumer.received(frame.get_payload_as_bytes())
        elif kind == _CLOSE:
            code = int(cast("Any", frame.get_close_code()))
            if frame.get_payload_as_bytes() and not _may_be_sent(code):
                self.close(1002, f"{code} is no code to close with")
                return
            self._closing = True
            self._code = code or 1005
            if code:
                transport.send_close(cast("Any", code), frame.get_close_message())
            else:
                transport.send(_CLOSE, b"")
            transport.disconnect()
        elif kind in (_TEXT, _BINARY, _CONTINUATION):
            self._part(frame, kind)

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        self._closing = True
        self._parts = None
        self._forget()
        self._consumer.closed(self._code)
        self._transport = (
            None  # it holds the longest message's buffer, and would hold it until the garbage is collected
        )

    def send_user_specific_ping(self, transport: picows.WSTransport) -> None:
        left = transport.underlying_transport.get_write_buffer_size()
        takes_more, self._left = left < self._left, left
        if self._reading or (self._stuck and not takes_more):
            transport.send_ping()
        else:
            # Its answer could not be read, or not be sent yet: a peer whose requests wait, or that reads a long reply
            # slowly, is not to be taken for dead.
            asyncio.get_running_loop().call_soon(transport.notify_user_specific_pong_received)

    def pause_writing(self) -> None:
        # Nothing is read from a peer that takes nothing: its pings alone would heap up answers without end.
        self._stuck = True
        self._left = self._transport.underlying_transport.get_write_buffer_size()
        self._read_or_not()
        self._consumer.writing_paused()

    def resume_writing(self) -> None:
        self._stuck = False
        self._read_or_not()
        self._consumer.writing_resumed()

    def _read_or_not(self) -> None:
        reading = self._closing or (self._wanted and not self._stuck)
        if reading is not self._reading and self._transport is not None:
            self._reading = reading
            transport = self._transport.underlying_transport
            if not reading:
                transport.pause_reading()
            elif not transport.is_closing():
                transport.resume_reading()

    async def _run(self) -> None:
        try:
            await self._consumer.run()
        finally:
            self.close()

    def _part(self, frame: picows.WSFrame, kind: Any) -> None:
        if (kind == _CONTINUATION) is (self._parts is None):
            self.close(1002, "a fragment out of place")
            return
        if self._parts is None:
            self._parts = bytearray()
            self._parts_are_text = kind == _TEXT
            self._parts_count = 0
        self._parts += frame.get_payload_as_bytes()
        self._parts_count += 1  # empty fragments without end are a flood, too
        if max(len(self._parts), self._parts_count) > self._max_message_bytes:
            self._parts = None
            self.close(1009, f"a message longer than {self._max_message_bytes} bytes")
        elif frame.fin:
            message = bytes(self._parts)
            self._parts = None
            if self._parts_are_text:
                self._text(message)
            else:
                self._consumer.received(message)

    def _text(self, payload: bytes) -> None:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            self.close(1007, "a text message that is not UTF-8")
            return
        self._consumer.received(text)


_TEXT, _BINARY, _CLOSE = picows.WSMsgType.TEXT, picows.WSMsgType.BINARY, picows.WSMsgType.CLOSE
_CONTINUATION = picows.WSMsgType.CONTINUATION


def _may_be_sent(code: int) -> bool:
    return (1000 <= code <= 1014 and code not in (1004, 1005, 1006)) or 3000 <= code <= 4999


def _fast_parts(app: Any) -> _Fast | None:
    state = getattr(app, "state", None)
    doors: Mapping[str, Door] | None = getattr(state, "doors", None)
    if doors is None:
        return None
    # A middleware of the user's wants to see the sockets too, and sees them on the way through ASGI only.
    if not all(_lets_sockets_pass(each.cls) for each in getattr(app, "user_middleware", ())):
        return None
    return _Fast(
        doors=doors,
        nursery=app.state.nursery,
        max_message_bytes=app.state.settings.max_message_bytes,
        ping_interval_s=app.state.settings.ping_interval_s,
        access=getattr(state, "access", None),
    )


def _lets_sockets_pass(middleware: type) -> bool:
    return middleware is CORSMiddleware or bool(getattr(middleware, "knows_fast_sockets", False))


def _handshake(head: bytes, transport: Any) -> Handshake:
    lines = head.decode("latin-1").split("\r\n")
    target = urlsplit(lines[0].split(" ")[1])
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            key = name.strip().lower()
            headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    offered = headers.get("sec-websocket-protocol", "")
    peer = transport.get_extra_info("peername")
    return Handshake(
        path=unquote(target.path),
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        headers=headers,
        subprotocols=tuple(name.strip() for name in offered.split(",") if name.strip()),
        client=f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(cast("tuple[Any, ...]", peer)) > 1 else "",
    )


def _refused(refusal: Any) -> picows.WSUpgradeResponseWithListener:
    body = json.dumps({"detail": refusal.message}).encode()
    headers = {"Content-Type": "application/json", **getattr(refusal, "headers", {})}
    response = picows.WSUpgradeResponse.create_error_response(refusal.status, body, headers)
    return picows.WSUpgradeResponseWithListener(response, None)


def _feed(protocol: Any, data: bytes) -> None:
    if not hasattr(protocol, "get_buffer"):
        protocol.data_received(data)
        return
    while data:
        buffer = protocol.get_buffer(len(data))
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]
