"""HTTP of every wrong shape: refused or answered once, never taken for two requests, and never a server error."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import pytest
from hostile_peer import Peer
from hostile_process import LIMIT, ServerProcess

pytestmark = pytest.mark.usefixtures("well")

SMUGGLED = b"GET /capacity HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Shape:
    """Bytes, and the status lines that may answer them; None where the connection may be dropped without one."""

    data: bytes
    statuses: tuple[int | None, ...]


def post(path: str, headers: bytes, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n%b" % (path.encode(), headers, body)


def get(target: bytes, headers: bytes = b"", version: bytes = b"1.1") -> bytes:
    return b"GET %b HTTP/%b\r\nHost: localhost\r\nConnection: close\r\n%b\r\n" % (target, version, headers)


LENGTH = b"Content-Length: %d\r\n" % (len(SMUGGLED) + 5)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
JSON = b"Content-Type: application/json\r\n"

SHAPES: dict[str, Shape] = {
    # One request with another hidden in it: two readers must not disagree on where the first ends.
    "a length and chunks": Shape(post("/step", LENGTH + CHUNKED, b"0\r\n\r\n" + SMUGGLED), (400,)),
    "chunks and a length": Shape(post("/step", CHUNKED + LENGTH, b"0\r\n\r\n" + SMUGGLED), (400,)),
    "two lengths": Shape(post("/step", b"Content-Length: 0\r\n" + LENGTH, SMUGGLED), (400,)),
    "a length with a sign": Shape(post("/step", b"Content-Length: +5\r\n", b"hello"), (400,)),
    "a negative length": Shape(post("/step", b"Content-Length: -1\r\n", b""), (400,)),
    "a length in hexadecimal": Shape(post("/step", b"Content-Length: 0x5\r\n", b"hello"), (400,)),
    "a list of lengths": Shape(post("/step", b"Content-Length: 5, 5\r\n", b"hello"), (400,)),
    "a length beyond 64 bits": Shape(post("/step", b"Content-Length: 99999999999999999999\r\n", b""), (400, 413)),
    "a space before the colon": Shape(post("/step", b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"), (400,)),
    "chunks in another word": Shape(post("/step", b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"), (400,)),
    "chunks, then identity": Shape(post("/step", b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"), (400,)),
    "a header over two lines": Shape(get(b"/health", b"X-A: b\r\n c\r\n"), (400, 200)),
    "a chunk of no size": Shape(post("/step", CHUNKED, b"zz\r\nhello\r\n0\r\n\r\n"), (400, 404, 422)),
    "a chunk of a size beyond 64 bits": Shape(post("/step", CHUNKED, b"f" * 17 + b"\r\nhello"), (400, 413)),
    "a chunk with a negative size": Shape(post("/step", CHUNKED, b"-1\r\nhello"), (400,)),
    "a chunk whose end is missing": Shape(post("/step", CHUNKED, b"5\r\nhelloX0\r\n\r\n"), (400,)),
    "a null in a header": Shape(get(b"/health", b"X-A: a\0b\r\n"), (400,)),
    "a line end in a header": Shape(get(b"/health", b"X-A: a\rb\r\n"), (400,)),
    "a null in the path": Shape(get(b"/he\0alth"), (400,)),
    # Requests that are only wrong.
    "no HTTP at all": Shape(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 300, (400,)),
    "a binary flood": Shape(bytes(range(256)) * 400, (400,)),
    "another version": Shape(get(b"/health", version=b"9.9"), (400, 505)),
    "the preface of HTTP/2": Shape(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,)),
    "an upgrade to HTTP/2": Shape(get(b"/health", b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), (200,)),
    "a method of nobody's": Shape(b"HACK /health HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 405)),
    "a tunnel": Shape(
        b"CONNECT example.invalid:80 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (400, 404, 405)
    ),
    "a path that climbs": Shape(get(b"/../../../../etc/passwd"), (404,)),
    "a path that climbs in disguise": Shape(get(b"/%2e%2e/%2e%2e/etc/passwd"), (404,)),
    "a path with broken escapes": Shape(get(b"/%ff%fe%zz"), (400, 404)),
    "another host's address": Shape(get(b"http://example.invalid/health"), (200, 400, 404)),
    "a target of megabytes": Shape(get(b"/" + b"a" * 2_000_000), (431, None)),
    "a header of megabytes": Shape(get(b"/health", b"X-A: " + b"a" * 2_000_000 + b"\r\n"), (431, None)),
    "headers without end": Shape(b"GET /health HTTP/1.1\r\n" + b"X-A: b\r\n" * 300_000, (431, None)),
    "a name of megabytes": Shape(get(b"/health", b"a" * 2_000_000 + b": b\r\n"), (400, 431, None)),
    "a body longer than a message may be": Shape(
        post("/reset", JSON + b"Content-Length: %d\r\n" % (40 * LIMIT), b" " * (40 * LIMIT)), (413, None)
    ),
    "chunks longer than a message may be": Shape(
        post("/reset", JSON + CHUNKED, (b"ffff\r\n" + b" " * 65_535 + b"\r\n") * 600), (413, None)
    ),
    "deep arrays": Shape(
        post("/reset", JSON + b"Connection: close\r\nContent-Length: 200000\r\n", b"[" * 100_000 + b"]" * 100_000),
        (422,),
    ),
    "deep objects": Shape(
        post(
            "/step",
            JSON + b"Connection: close\r\nContent-Length: 700001\r\n",
            b'{"a":' * 100_000 + b"1" + b"}" * 200_000,
        )[: 700_001 + 200],
        (422,),
    ),
    "an integer of many digits": Shape(
        post("/reset", JSON + b"Connection: close\r\nContent-Length: 900009\r\n", b'{"seed":' + b"9" * 900_000 + b"}"),
        (422,),
    ),
    "text that is not UTF-8": Shape(
        post("/reset", JSON + b"Connection: close\r\nContent-Length: 12\r\n", b'{"seed":"\xff"}'), (400, 422)
    ),
    "a byte order mark": Shape(
        post("/reset", JSON + b"Connection: close\r\nContent-Length: 5\r\n", b"\xef\xbb\xbf{}"), (200, 422)
    ),
    "half of a character": Shape(
        post("/reset", JSON + b"Connection: close\r\nContent-Length: 17\r\n", b'{"seed":"\\ud800"}'), (422,)
    ),
    "a socket's handshake without a key": Shape(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\n\r\n",
        (400, 403, None),
    ),
    "a socket's handshake of another version": Shape(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 7\r\n\r\n",
        (400, 426, None),
    ),
    "a socket's handshake elsewhere": Shape(
        b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        (403, 404),
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_wrong_shape_is_answered_once(own_server: ServerProcess, shape: Shape) -> None:
    with Peer(own_server.port) as peer:
        peer.send(shape.data)
        answer = peer.rest(timeout_s=60)
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None
    assert status in shape.statuses, answer[:200]
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert b"max_sessions" not in answer


def test_a_head_byte_by_byte_is_ended_in_time(own_server: ServerProcess) -> None:
    with Peer(own_server.port) as peer:
        for byte in get(b"/health", b"X-A: " + b"a" * 400 + b"\r\n"):
            if not peer.send(bytes([byte])):
                break
            time.sleep(0.05)  # twenty seconds and more for all of it, and a head may take two
        else:
            pytest.fail("a head may take as long as it likes")
        assert b"408" in peer.rest() or not peer.buffer


def test_empty_lines_before_a_request_are_ended_in_time(own_server: ServerProcess) -> None:
    with Peer(own_server.port) as peer:
        peer.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
        peer.send(b"\r\n")
        assert b"healthy" in peer.rest(timeout_s=60)


def test_a_body_that_stands_still_is_ended_in_time(own_server: ServerProcess) -> None:
    with Peer(own_server.port) as peer:
        peer.send(post("/reset", JSON + b"Content-Length: 1000\r\n", b"{"))
        assert peer.rest(timeout_s=60).startswith(b"HTTP/1.1 4")


def test_requests_in_a_row_are_each_answered_in_order(own_server: ServerProcess) -> None:
    with Peer(own_server.port) as peer:
        row = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
        peer.send(row + get(b"/health"))
        bodies = [json.loads(part.split(b"\r\n\r\n", 1)[1]) for part in peer.rest().split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [{"status": "healthy"}, {"ready": True}] * 20 + [{"status": "healthy"}]
