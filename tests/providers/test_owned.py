"""A command that is run as a part of this process ends with it, and says how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from openenv_trl.providers.owned import run_owned

LAUNCHER = [sys.executable, str(Path(__file__).with_name("launcher.py"))]
OWNER = "import sys; from openenv_trl.providers.owned import run_owned; sys.exit(run_owned(sys.argv[1:], grace_s=1))"


@pytest.fixture
def owner() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that runs a launcher, and the ids of the launcher and its child, which wait."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, *LAUNCHER, "wait"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(process.stdout.readline().split()[1]) for _ in range(2)]
    yield process, pids
    for pid in (process.pid, *pids):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a means to find what left the process group")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL], ids=lambda n: n.name)
async def test_a_launched_command_and_its_children_end_with_their_owner(
    owner: tuple[subprocess.Popen[str], list[int]], wait_gone: Callable[..., Awaitable[None]], number: signal.Signals
) -> None:
    process, pids = owner
    process.send_signal(number)
    await wait_gone(process.pid, *pids)
    assert process.wait() != 0


def test_an_owner_that_is_asked_to_stop_outlives_what_it_ran(owner: tuple[subprocess.Popen[str], list[int]]) -> None:
    process, (launcher, _) = owner
    process.terminate()
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(launcher, 0)


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_commands(code: int) -> None:
    assert run_owned([*LAUNCHER, str(code)]) == code


def test_the_command_gets_its_environment_variables() -> None:
    program = "import os, sys; sys.exit(int(os.environ['CODE']))"
    assert run_owned([sys.executable, "-c", program], env={**os.environ, "CODE": "7"}) == 7


def test_a_command_that_is_not_there_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_owned(["/no/such/command"]) == 127
    assert "cannot run /no/such/command" in capfd.readouterr().err
