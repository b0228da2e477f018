"""Owners to be killed, an image with a server that knows its lease, and a look at what is left of an owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from openenv_trl.providers.owner import OWNER_LABEL
from tests.providers.engines import PrivateEngine, docker, private_engine, require_engine

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLAIN_IMAGE = "python:3.11-slim"
# For what is waited for on a machine that has other things to do.
LONG_S = 120.0


class OwnerProcess:
    """A process that owns servers."""

    def __init__(self, spec: dict[str, Any], *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "owner_process.py"), json.dumps(spec), *words],
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.docker_host: str | None = spec.get("docker_host")
        self.id = self.read("owner")[0]

    def read(self, word: str) -> list[str]:
        """Wait until it says a word, and return what follows."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said, *rest = line.split()
            if said == word:
                return rest
        raise AssertionError(f"the owner ended before it said '{word}': {self.process.wait()}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        if number != signal.SIGSTOP:
            self.process.wait(LONG_S)

    def reapers(self) -> list[psutil.Process]:
        """Its reaper, or what that has become."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if self.id in (process.info["cmdline"] or ()) and process.pid != os.getpid()
        ]

    def kill_with_reaper(self) -> None:
        self.kill(signal.SIGSTOP)  # else it would start another reaper
        for reaper in self.reapers():
            reaper.kill()
        self.kill()

    def left(self) -> list[str]:
        """What it has on its engine, whatever its state."""
        label = f"label={OWNER_LABEL}={self.id}"
        found: list[str] = []
        for what in (("ps", "--all"), ("network", "ls"), ("volume", "ls"), ("service", "ls")):
            listed = docker(*what, "--quiet", "--filter", label, host=self.docker_host, check=False)
            found += [f"{what[0]} {each}" for each in listed.stdout.split()]
        return found

    def wait_nothing_left(self, within_s: float = LONG_S) -> None:
        wait_until(lambda: not self.left(), f"things of the owner are left: {self.left()}", within_s)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for reaper in self.reapers():
            reaper.kill()
        for each in self.left():
            what, name = each.split()
            command = {"ps": ("rm", "--force", "--volumes")}.get(what, (what, "rm"))
            docker(*command, name, host=self.docker_host, check=False)


def wait_until(done: Callable[[], bool], otherwise: str, within_s: float = LONG_S) -> None:
    ends = time.monotonic() + within_s
    while not done():
        if time.monotonic() > ends:
            pytest.fail(otherwise)
        time.sleep(0.1)


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., None]:
    """Waits until something holds; fails with a text where it does not."""
    return wait_until


@pytest.fixture
def own() -> Iterator[Callable[..., OwnerProcess]]:
    """Starts an owner; after the test nothing of it is left, whatever the test found."""
    owners: list[OwnerProcess] = []

    def start(spec: dict[str, Any], *words: str) -> OwnerProcess:
        owners.append(OwnerProcess(spec, *words))
        return owners[-1]

    yield start
    for owner in owners:
        owner.close()


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, Any]:
    """A server that knows of no lease."""
    require_engine()
    command = ["python", "-m", "http.server", "8000"]
    return {"type": "docker", "image": PLAIN_IMAGE, "name": "plain", "command": command, "health_path": "/"}


@pytest.fixture(scope="session")
def leased_image() -> Iterator[str]:
    """An image whose server is ours."""
    require_engine()
    tag = f"leased-env:test-{uuid.uuid4().hex[:8]}"
    dockerfile = "environments/echo_env/server/Dockerfile"
    docker("build", "--quiet", "--network", "host", "--file", str(ROOT / dockerfile), "--tag", tag, str(ROOT))
    yield tag
    docker("rmi", "--force", tag, check=False)


@pytest.fixture(scope="session")
def swarm() -> Iterator[PrivateEngine]:
    """An engine of the tests' own that is a Swarm of one node, with the plain image."""
    with private_engine([PLAIN_IMAGE]) as engine:
        here = ("--advertise-addr", "127.0.0.1", "--listen-addr", "127.0.0.1:0")
        engine.docker("swarm", "init", *here, "--data-path-port", str(engine.overlay_port))
        yield engine
