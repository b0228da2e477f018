"""Waiting until a server answers ``GET /health`` with 200, without an HTTP library.

A server that got a listening socket from us answers the very first request, as soon as it takes
connections: until then the request waits in the socket's backlog.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import anyio

# A request may wait this long for its answer; then it is asked again, and the caller's `ended` is looked at.
_ATTEMPT_S = 2.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.25
# What this package's server, uvicorn, Flask and gunicorn write.
_LISTENS = re.compile(r"(?:Serving|[Rr]unning|Listening) (?:on|at):? https?://(\[[^\]\s]+\]|[^\s:/]+):(\d{1,5})\b")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


async def wait_until_ready(host: str, port: int, path: str, timeout_s: float, ended: Callable[[], bool]) -> str:
    """Polls the server's health until it is ready, has ended, or the time is up.

    Args:
        host: Where the server listens.
        port: Where the server listens.
        path: The path to ask for, such as ``/health``.
        timeout_s: Seconds to wait at most.
        ended: Whether the server's process has ended.

    Returns:
        "" when it answered 200, otherwise what the last attempt met with.
    """
    last = "no answer"
    pause_s = _FIRST_PAUSE_S
    with anyio.move_on_after(timeout_s):
        while not ended():
            last = await _ask(host, port, path)
            if not last:
                return ""
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    return last


def listening_elsewhere(port: int, log: str) -> str:
    """What a server in a container says of where it listens, where nobody reaches it there; "" where it says nothing.

    Args:
        port: The port by which it is reached.
        log: Its last lines.
    """
    told = _LISTENS.findall(log)
    if not told:
        return ""
    host, there = told[-1]
    if int(there) != port:
        return f"by its log the server listens on port {there}, and port={port}: set port={there}"
    if host in _LOOPBACK:
        return f"by its log the server listens on {host}, reached inside its container only: have it listen on 0.0.0.0"
    return ""


def _in_words(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused: nothing listens there"
    if isinstance(error, ConnectionResetError | BrokenPipeError | anyio.EndOfStream | anyio.BrokenResourceError):
        return "the connection was closed without an answer"
    return f"{type(error).__name__}: {error}".rstrip(": ")


async def _ask(host: str, port: int, path: str) -> str:
    """One health request; "" when it was answered 200, otherwise what came instead."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
    reply = b""
    with anyio.move_on_after(_ATTEMPT_S):
        try:
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(request)
                while b"\r\n" not in reply:
                    reply += await stream.receive()
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            return _in_words(error.__cause__ or error)  # anyio wraps the error of the address
    if not reply:
        return "no answer"
    status = reply.split(b"\r\n", 1)[0].split(b" ", 2)
    ready = len(status) >= 2 and status[0].startswith(b"HTTP/") and status[1] == b"200"
    return "" if ready else f"answered {reply[:80]!r}"
