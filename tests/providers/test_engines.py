"""A private engine of the tests leaves nothing behind, also where a test has killed it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import uuid

import psutil
import pytest

from tests.providers.engines import leave_out, make_bridge, port_for_later, private_engine

pytestmark = [pytest.mark.docker]


def test_containers_of_an_engine_that_was_killed_end_with_the_test():
    def processes() -> list[str]:
        return [each.name() for each in psutil.process_iter(["cmdline"]) if folder in str(each.info["cmdline"])]

    with private_engine(["python:3.11-slim"]) as engine:
        folder = str(engine.folder)
        engine.docker("run", "--detach", "--init", "--network", "none", "python:3.11-slim", "sleep", "1000")
        engine.stop(signal.SIGKILL)
        assert processes()
    left = [each for each in psutil.process_iter(["cmdline", "status"]) if folder in str(each.info["cmdline"])]
    psutil.wait_procs(left, 60)
    assert not processes()


def test_every_private_engine_has_a_network_of_its_own(monkeypatch: pytest.MonkeyPatch):
    if os.geteuid() != 0 or shutil.which("ip") is None:
        leave_out("A bridge needs root and ip.")

    class Unlucky:
        """Draws the first that there is, so that two alike would draw the same."""

        def choice(self, numbers: list[int]) -> int:
            return numbers[0]

    monkeypatch.setattr("tests.providers.engines.CHANCE", Unlucky())
    names = [f"ot{uuid.uuid4().hex[:8]}" for _ in range(2)]
    try:
        numbers = [make_bridge(name) for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
    assert len(set(numbers)) == 2


def test_a_port_for_later_is_none_that_the_system_gives_away(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("", 0)) as taken:
        drawn = iter((taken.getsockname()[1], 20001, 20002, 20003))
        monkeypatch.setattr("tests.providers.engines.CHANCE.randint", lambda *_: next(drawn), raising=False)
        assert port_for_later() != taken.getsockname()[1]
