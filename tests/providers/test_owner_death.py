"""Nothing leaks: what a provider started is gone soon after its process died, also by kill -9."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["linux", "portable"])
def any_supervisor(request, monkeypatch):
    """The supervisor with Linux's means, and without them."""
    if request.param == "portable":
        monkeypatch.setenv("SUPERVISOR", str(Path(__file__).with_name("portable_supervisor.py")))


@pytest.mark.usefixtures("any_supervisor")
@pytest.mark.parametrize("fd", [True, False], ids=["by-descriptor", "by-port"])
async def test_servers_die_with_an_owner_killed_by_sigkill(owner, plain_server, wait_gone, answers, fd):
    started = owner(plain_server(fd=fd), replicas=2)
    started.read_until(lambda o: len(o.urls) == 2)
    assert all(answers(url) for url in started.urls)
    started.kill()
    await wait_gone(*started.pids["server"], *started.pids["supervisor"])
    assert len(started.pids["server"]) == 2
    assert not any(answers(url) for url in started.urls)


@pytest.mark.usefixtures("any_supervisor")
async def test_a_server_that_ignores_sigterm_dies_with_its_owner(owner, plain_server, wait_gone):
    started = owner(plain_server("--ignore-term"))
    started.read_until(lambda o: o.urls)
    started.kill()
    await wait_gone(*started.pids["server"], *started.pids["supervisor"])


@pytest.mark.usefixtures("any_supervisor")
async def test_the_servers_own_children_die_with_their_group(owner, plain_server, wait_gone):
    started = owner(plain_server("--grandchild"))
    started.read_until(lambda o: o.urls)
    started.kill()
    await wait_gone(*started.pids["server"], *started.pids["grandchild"], *started.pids["supervisor"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a means to find what left the process group")
async def test_a_daemon_that_left_the_group_dies_too(owner, plain_server, wait_gone):
    started = owner(plain_server("--daemon"))
    started.read_until(lambda o: o.urls)
    started.kill()
    await wait_gone(*started.pids["server"], *started.pids["daemon"], *started.pids["supervisor"])


@pytest.mark.usefixtures("any_supervisor")
async def test_a_server_that_is_still_starting_dies_with_its_owner(owner, plain_server, wait_gone):
    started = owner(plain_server("--never-ready"))
    started.read_until(lambda o: o.pids.get("server"))
    started.kill()
    await wait_gone(*started.pids["server"])


@pytest.mark.usefixtures("any_supervisor")
async def test_a_forked_sibling_that_holds_the_pipe_does_not_keep_servers_alive(owner, plain_server, wait_gone):
    started = owner(plain_server(), forks=True)
    started.read_until(lambda o: o.urls and o.pids.get("sibling"))
    started.kill()
    await wait_gone(*started.pids["server"], *started.pids["supervisor"])
    os.kill(started.pids["sibling"][0], 0)  # it lives, and its servers do not


async def test_an_owner_ended_by_sigterm_leaves_nothing(owner, plain_server, wait_gone):
    started = owner(plain_server())
    started.read_until(lambda o: o.urls)
    started.process.send_signal(signal.SIGTERM)
    await wait_gone(started.process.pid, *started.pids["server"], *started.pids["supervisor"])


async def test_a_server_dies_with_owner_and_supervisor_killed_together(owner, plain_server, wait_gone):
    started = owner(plain_server())
    started.read_until(lambda o: o.urls)
    started.process.send_signal(signal.SIGSTOP)  # so that it cannot act on its supervisor's death
    os.kill(started.pids["supervisor"][0], signal.SIGKILL)
    started.kill()
    await wait_gone(*started.pids["server"])
