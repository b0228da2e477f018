"""Parts that the provider tests share: a server that is not ours, an owner to kill, and ways to see what is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

HERE = Path(__file__).parent


@pytest.fixture
def plain_server() -> Callable[..., list[str]]:
    """The command of a standard-library server, by port number or, with fd=True, by descriptor."""

    def command(*options: str, fd: bool = False) -> list[str]:
        where = ["--fd", "{fd}"] if fd else ["--port", "{port}"]
        return [sys.executable, str(HERE / "plain_server.py"), *where, *options]

    return command


@pytest.fixture
def wait_gone() -> Callable[..., Awaitable[None]]:
    """Waits until none of the processes runs; fails after a time."""

    async def wait(*pids: int | None, within_s: float = 60.0) -> None:
        with anyio.fail_after(within_s):
            for pid in pids:
                assert pid is not None
                if not hasattr(os, "pidfd_open"):
                    await _poll_gone(pid)
                    continue
                try:
                    handle = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                try:
                    await anyio.wait_readable(handle)
                finally:
                    os.close(handle)

    return wait


async def _poll_gone(pid: int) -> None:
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            await anyio.sleep(0.02)


@pytest.fixture
def answers() -> Callable[[str], bool]:
    """Whether something takes connections at a URL."""

    def connect(url: str) -> bool:
        parts = urlsplit(url)
        try:
            socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    return connect


class Owner:
    """A process that runs a provider; what it and its servers said, in lists by kind."""

    def __init__(self, replicas: int, forks: bool, command: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "owner.py"), str(replicas), str(int(forks)), *command],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pids: dict[str, list[int]] = {}
        self.urls: list[str] = []

    def read_until(self, done: Callable[[Owner], bool]) -> None:
        assert self.process.stdout is not None
        while not done(self):
            words = self.process.stdout.readline().split()
            assert words, f"the owner ended: {self.process.wait()}"
            if words[0] == "ready":
                self.urls.append(words[1])
            elif words[0] in ("supervisor", "child", "sibling"):
                self.pids.setdefault(words[0], []).append(int(words[1]))
            elif words[2] == "pid":
                self.pids.setdefault(words[4], []).append(int(words[3]))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def owner() -> Iterator[Callable[..., Owner]]:
    """Starts an owner of servers; after the test nothing of it is left, whatever the test found."""
    owners: list[Owner] = []

    def start(command: list[str], *, replicas: int = 1, forks: bool = False) -> Owner:
        owners.append(Owner(replicas, forks, command))
        return owners[-1]

    yield start
    for started in owners:
        started.kill()
        for pids in started.pids.values():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if started.process.stdout is not None:
            started.process.stdout.close()
