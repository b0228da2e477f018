"""HTTP requests that belong to another worker: an ASGI middleware that has them answered there.

A request names its session in the query, in MCP's header, or in its JSON body. It is forwarded over one end of a pair
of sockets, whose other end the owner gets; bodies and streams of events pass as they come. A session that MCP's own
library opened, whose id tells no worker, gets one in the header that the client sees.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast
from urllib.parse import parse_qsl

import anyio
import httptools

from openenv_trl.server.workers import scrape
from openenv_trl.server.workers.affinity import MCP_HEADER, Affinity
from openenv_trl.server.workers.handover import FORWARDED, send_socket
from openenv_trl.wire.codec import decode, encode

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

logger = logging.getLogger("openenv_trl.server")

_CHUNK = 65_536
_SHORT_PATH = "/mcp"
_BEGINNINGS = ("initialize", "openenv/session/create")
# Of one connection, not of the request; and what the server adds to each of its own answers.
_NOT_FORWARDED = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"expect"}
_NOT_RETURNED = {b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"}


class AffinityMiddleware:
    """Answers each request where its session is.

    Args:
        app: What answers here.
        affinity: Who owns what.
        longest_body: Bytes of a body that are looked at for a session's id.
    """

    knows_fast_sockets = True  # WebSockets are handed over before they come here

    def __init__(self, app: Application, affinity: Affinity, longest_body: int) -> None:
        self._app = app
        self._affinity = affinity
        self._longest_body = longest_body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer the request, here or there."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope.get("state", {}).get(FORWARDED):
            await self._answer_here(scope, receive, send)
            return
        if scope["path"] == scrape.PATH and scope["method"] == "GET":
            await scrape.answer_for_all(scope, send, self._affinity.workers(), self._answer_by)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        named = self._affinity.named(query, headers)
        begin: list[Message] = []
        if named is None and scope["method"] == "POST" and scope["path"].rstrip("/").endswith(_SHORT_PATH):
            begin = await _read_body(receive, self._longest_body)
            named = self._named_in(b"".join(part.get("body", b"") for part in begin), begins=MCP_HEADER not in headers)
        receive = _after(begin, receive)
        worker = self._affinity.elsewhere(named)
        if worker is None or not await forward(self._affinity, worker, scope, receive, send):
            await self._answer_here(scope, receive, send)

    async def _answer_by(self, worker: int, scope: Message, receive: Receive, send: Send) -> None:
        if worker == self._affinity.place.index:
            await self._app(scope, receive, send)
        else:
            await forward(self._affinity, worker, scope, receive, send)

    async def _answer_here(self, scope: Message, receive: Receive, send: Send) -> None:
        mark = f"~w{self._affinity.place.index}".encode()
        name = MCP_HEADER.encode()

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (key, value + mark if key.lower() == name and not self._is_named(value) else value)
                    for key, value in message.get("headers", ())
                ]
            await send(message)

        scope["headers"] = [
            (key, value.removesuffix(mark) if key == name else value) for key, value in scope["headers"]
        ]
        await self._app(scope, receive, send_marked)

    def _is_named(self, session_id: bytes) -> bool:
        return self._affinity.worker_of(session_id.decode("latin-1")) is not None

    def _named_in(self, body: bytes, *, begins: bool) -> int | None:
        if b"session" not in body and b"initialize" not in body and b"\\u" not in body:
            return None
        try:
            request = decode(body)
        except ValueError:
            return None  # the application says so in its own words
        if not isinstance(request, dict):
            return None
        content = cast("dict[str, Any]", request)
        if content.get("method") in _BEGINNINGS:
            return self._affinity.memory.take_turn() if begins else None
        params = content.get("params")
        session_id = cast("dict[str, Any]", params).get("session_id") if isinstance(params, dict) else None
        return self._affinity.worker_of(session_id) if isinstance(session_id, str) else None


async def _read_body(receive: Receive, longest: int) -> list[Message]:
    """Return the messages that bring a request's body, up to a length."""
    messages: list[Message] = []
    length = 0
    while length <= longest:
        message = await receive()
        messages.append(message)
        length += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return messages


def _after(begin: list[Message], receive: Receive) -> Receive:
    """Return a receive function that gives these messages first."""
    if not begin:
        return receive
    rest = iter(begin)

    async def again() -> Message:
        return next(rest, None) or await receive()

    return again


async def forward(affinity: Affinity, worker: int, scope: Message, receive: Receive, send: Send) -> bool:
    """Have another worker answer a request. False, with nothing received or sent, where it cannot be reached."""
    ours, theirs = socket.socketpair()
    with theirs:
        if not send_socket(theirs.fileno(), b"", affinity.place.family, worker, client=scope.get("client")):
            ours.close()
            return False
    ours.setblocking(False)
    with ours:  # closed at the end, whatever that is: the other worker sees that nobody waits any more
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_send_request, ours, scope, receive, tasks.cancel_scope)
            await _return_response(ours, scope, send)
            tasks.cancel_scope.cancel()
    return True


async def _send_request(way: socket.socket, scope: Message, receive: Receive, whole: anyio.CancelScope) -> None:
    headers: Headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_FORWARDED]
    chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    target = scope.get("raw_path") or scope["path"].encode()
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target), *(b"%b: %b" % pair for pair in headers)]
    lines += [b"transfer-encoding: chunked"] if chunked else []
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(way, b"\r\n".join([*lines, b"connection: close", b"", b""]))
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                whole.cancel()
                return
            body, more = message.get("body", b""), message.get("more_body", False)
            if chunked and body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if chunked and not more:
                body += b"0\r\n\r\n"
            if body:
                await loop.sock_sendall(way, body)
    except OSError:
        pass  # it was answered before it was read to its end; the answer is there all the same
    while (await receive())["type"] != "http.disconnect":
        pass
    whole.cancel()  # the client has left


async def _return_response(way: socket.socket, scope: Message, send: Send) -> None:
    loop = asyncio.get_running_loop()
    response = _Response()
    parser = httptools.HttpResponseParser(response)
    started = False
    while not response.complete:
        try:
            data = await loop.sock_recv(way, _CHUNK)
            parser.feed_data(data)
        except (OSError, httptools.HttpParserError):
            data = b""
        if response.headers_complete and not started:
            started = True
            headers = [(name, value) for name, value in response.headers if name not in _NOT_RETURNED]
            await send({"type": "http.response.start", "status": parser.get_status_code(), "headers": headers})
            response.complete = response.complete or scope["method"] == "HEAD"
        if response.body and started:
            body, response.body = response.body, b""
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if not data and not response.complete:
            break
    if not started:
        body = encode({"detail": "The worker process that has this session ended before it answered."})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 502, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    elif response.complete:
        await send({"type": "http.response.body", "body": b""})
    else:
        logger.warning("A worker ended in the midst of an answer that it gave for this one")


class _Response:
    """What the parser tells."""

    def __init__(self) -> None:
        self.headers: Headers = []
        self.headers_complete = False
        self.body = b""
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.headers_complete = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True
