"""Sessions of different servers on one machine have different users, also those of the workers of one server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.users import FIRST, UserRange

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers.ports import PortReservation

pytestmark = pytest.mark.anyio
SIZE = 200_000
PACKAGE = str(Path(__file__).resolve().parents[1])
CLAIM = (
    "from coding_env.sandbox.users import UserRange\n"
    "claim = UserRange(200_000)\nprint(claim.first, flush=True)\ninput()"
)


def test_ranges_of_many_holders_do_not_meet() -> None:
    claims = [UserRange(SIZE) for _ in range(60)]
    firsts = {claim.first for claim in claims}
    assert len(firsts) == 60
    assert all((first - FIRST) % SIZE == 0 for first in firsts)
    for claim in claims:
        claim.close()


def test_a_range_is_free_again_when_its_process_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coding_env.sandbox.users._BLOCKS", 1)
    code = f"import coding_env.sandbox.users as users\nusers._BLOCKS = 1\n{CLAIM}"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert int(holder.stdout.readline()) == FIRST
    assert UserRange(SIZE)._claim is None  # pyright: ignore[reportPrivateUsage]
    holder.kill()
    holder.communicate()
    again = UserRange(SIZE)
    assert again._claim is not None  # pyright: ignore[reportPrivateUsage]
    again.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sessions have users of their own")
async def test_sessions_of_two_sandboxes_have_different_users() -> None:
    sandboxes = [Sandbox(Limits(), warm=0) for _ in range(2)]
    told: list[str] = []
    for sandbox in sandboxes:
        for _ in range(4):
            session = sandbox.take()
            told.append((await session.request({"op": "run", "code": "import os; os.getuid()"}, 60)).stdout)
            session.close()
        sandbox.close()
    assert len(set(told)) == 8
    assert all(int(each) >= FIRST for each in told)


@pytest.fixture
def two_workers() -> Iterator[str]:
    """The address of a server of two processes."""
    held = PortReservation("127.0.0.1")  # or somebody else may have the port before the server
    port = held.port
    command = [sys.executable, "-m", "openenv_trl.server", PACKAGE, "--port", str(port), "--workers", "2"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    assert any("Serving on" in line for line in server.stderr)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.communicate()
    held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sessions have users of their own")
async def test_sessions_of_two_workers_of_a_server_have_different_users(two_workers: str) -> None:
    action = {"type": "call_tool", "tool_name": "run_python", "arguments": {"code": "import os; os.getuid()"}}
    async with AsyncExitStack() as stack:
        told: list[int] = []
        for _ in range(16):
            env = await stack.enter_async_context(GenericEnvClient(two_workers))
            await env.reset()
            told.append(int((await env.step(action)).observation["stdout"]))
    assert len(set(told)) == 16
    assert len({(uid - FIRST) // SIZE for uid in told}) == 2
