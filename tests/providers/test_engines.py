"""A private engine of the tests leaves nothing behind, also where a test has killed it."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.providers.engines import private_engine

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
