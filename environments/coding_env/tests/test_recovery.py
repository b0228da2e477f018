"""What the sandbox rests on may die too: the next session is there all the same, and nothing is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.limits import Limits

from openenv_trl.errors import EnvironmentExecutionError

pytestmark = pytest.mark.anyio
SUM = {"op": "run", "code": "40 + 2"}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def keepers(sandbox: Sandbox, count: int) -> list[int]:
    """The sessions' keepers, once each is what it will be."""
    process = sandbox._zygote  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    while len(found := [child for child in children(process.pid) if children(child)]) != count:  # noqa: ASYNC110
        await anyio.sleep(0.02)
    return found


async def test_sessions_are_started_also_after_the_first_process_was_killed() -> None:
    sandbox = Sandbox(Limits(), warm=1)
    before = sandbox.take()
    assert (await before.request(SUM, 60)).stdout == "42\n"
    folder = sandbox._folder  # pyright: ignore[reportPrivateUsage]
    process = sandbox._zygote  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    process.kill()
    process.wait()
    after = [sandbox.take() for _ in range(3)]
    assert [(await session.request(SUM, 60)).stdout for session in after] == ["42\n"] * 3
    assert (await before.request(SUM, 60)).stdout == "42\n"
    for session in (before, *after):
        session.close()
    sandbox.close()
    gone = [anyio.Path(folder), anyio.Path(sandbox._folder)]  # pyright: ignore[reportPrivateUsage]
    assert [await path.exists() for path in gone] == [False, False]
    with pytest.raises(EnvironmentExecutionError, match="closed"):
        sandbox.take()


async def test_a_session_whose_keeper_was_killed_says_so_and_all_in_it_is_gone() -> None:
    sandbox = Sandbox(Limits(), warm=0)
    session = sandbox.take()
    assert (await session.request(SUM, 60)).stdout == "42\n"
    with anyio.fail_after(60):
        (keeper,) = await keepers(sandbox, 1)
        os.kill(keeper, signal.SIGKILL)
        await keepers(sandbox, 0)
    reply = await session.request(SUM, 60)
    assert reply.data is None
    assert "keeper" in reply.failure
    assert not session.usable
    session.close()
    sandbox.close()


async def test_packages_are_in_reach_where_they_were_named_and_nowhere_else(tmp_path: Path) -> None:
    await anyio.Path(tmp_path / "a_package_of_ours.py").write_text("answer = 42\n")
    await anyio.Path(tmp_path).chmod(0o755)
    code = {"op": "run", "code": "import a_package_of_ours\na_package_of_ours.answer"}
    for packages, told in (([str(tmp_path)], "42\n"), ([], "")):
        sandbox = Sandbox(Limits(), packages=packages, warm=0)
        session = sandbox.take()
        reply = await session.request(code, 60)
        assert reply.stdout == told, reply.stderr
        session.close()
        sandbox.close()


async def test_a_session_leaves_no_file_also_where_its_workspace_is_on_the_disk() -> None:
    sandbox = Sandbox(Limits(), warm=0, disabled=["files"])
    session = sandbox.take()
    code = "import os\nfor n in range(300):\n    os.mkdir('d'); os.chdir('d')\nopen('f', 'w').close()"
    assert (await session.request({"op": "run", "code": code}, 60)).stderr == ""
    reply = await session.request({"op": "run", "code": "import os; print(os.environ['HOME'])"}, 60)
    workspace = anyio.Path(reply.stdout.strip())
    assert await (workspace / "d").exists()
    session.close()
    with anyio.fail_after(60):
        while await (workspace / "d").exists():  # noqa: ASYNC110
            await anyio.sleep(0.02)
    sandbox.close()
