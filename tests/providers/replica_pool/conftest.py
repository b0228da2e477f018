"""What pools of replicas are tested with: real server processes, sessions that are sockets, and patience."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import pytest

from openenv_trl.providers import ProcessProvider, Replica


class Visit:
    """A session: a connection to the server, for as long as it is open."""

    def __init__(self, replica: Replica, stream: anyio.abc.SocketStream) -> None:
        self.replica = replica
        self._stream = stream

    async def close(self) -> None:
        await self._stream.aclose()


async def visit(replica: Replica) -> Visit:
    """Opens a session."""
    parts = urlsplit(replica.base_url)
    assert parts.hostname is not None
    assert parts.port is not None
    return Visit(replica, await anyio.connect_tcp(parts.hostname, parts.port))


@pytest.fixture
def connect() -> Callable[[Replica], Awaitable[Visit]]:
    """Opens a session at a server that knows no WebSocket."""
    return visit


@pytest.fixture
def plain(plain_server: Callable[..., list[str]]) -> Callable[..., ProcessProvider]:
    """A provider of servers that start quickly."""

    def make(*options: str, **settings: Any) -> ProcessProvider:
        return ProcessProvider(plain_server(*options, fd=True), stop_grace_s=0.1, **settings)

    return make


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Waits until something is so, however slow the machine is."""

    async def wait(so: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not so():  # noqa: ASYNC110 - what processes do sets no event
                await anyio.sleep(0.01)

    return wait


@pytest.fixture
def send() -> Callable[[ProcessProvider, str, int], None]:
    """Sends a signal to the server at an address."""

    def to(provider: ProcessProvider, base_url: str, number: int = signal.SIGKILL) -> None:
        pids = dict(zip(provider.base_urls, provider.server_pids, strict=True))
        pid = pids[base_url]
        assert pid is not None
        os.kill(pid, number)

    return to
