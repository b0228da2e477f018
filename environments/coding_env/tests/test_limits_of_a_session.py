"""What a session may use as a whole: memory, processor time while it rests, and the disk, whatever kind it is."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from coding_env.sandbox import control_groups
from coding_env.sandbox.inside import disk
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.session import Reply, SandboxSession

pytestmark = pytest.mark.anyio
SPIN = "import threading\ncount = 0\ndef spin():\n    global count\n    while True: count += 1\n"
FILL = "for n in range(40):\n    with open(f'f{n}', 'wb') as file: file.write(bytes(1 << 20))\n"


@asynccontextmanager
async def session_of(limits: Limits, **options: Any) -> AsyncGenerator[SandboxSession]:
    sandbox = Sandbox(limits, warm=0, **options)
    session = sandbox.take()
    yield session
    session.close()
    sandbox.close()


async def run(session: SandboxSession, code: str) -> Reply:
    return await session.request({"op": "run", "code": code}, 60)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.02)


def states_below(pid: int) -> list[str]:
    """Of all processes below this one, by who started them: R for one that runs, T for one that was stopped."""
    found: list[str] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            found += [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]]
            found += states_below(int(child))
        except FileNotFoundError:
            continue
    return found


def processes_stopped(sandbox: Sandbox) -> int:
    """How many processes of a sandbox's sessions are stopped."""
    return states_below(_first(sandbox)).count("T")


def _first(sandbox: Sandbox) -> int:
    process = sandbox._zygote  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    return process.pid


@pytest.mark.parametrize("disabled", [(), ("files",), ("files", "user")])
async def test_threads_left_behind_stand_still_while_nothing_is_asked(disabled: tuple[str, ...]) -> None:
    sandbox = Sandbox(Limits(), warm=0, disabled=disabled)
    session = sandbox.take()
    await run(session, SPIN + "threading.Thread(target=spin, daemon=True).start()")
    await until(lambda: processes_stopped(sandbox) == 1)
    moves = "import time\nbefore = count\nwhile count == before: time.sleep(0.01)\nprint('moves')"
    assert (await run(session, moves)).stdout == "moves\n"
    await until(lambda: processes_stopped(sandbox) == 1)
    assert (await run(session, "40 + 2")).stdout == "42\n"
    session.close()
    sandbox.close()


async def test_processes_left_behind_stand_still_too_and_are_killed_at_the_end() -> None:
    sandbox = Sandbox(Limits(), warm=0)
    session = sandbox.take()
    code = "import subprocess, sys\nleft = subprocess.Popen([sys.executable, '-c', 'while True: pass'])"
    refused = (await run(session, code)).stderr
    if not refused:
        await until(lambda: processes_stopped(sandbox) == 2)
        assert (await run(session, "left.poll()")).stdout == ""
        session.close()
        await until(lambda: states_below(_first(sandbox)) == [])
    session.close()
    sandbox.close()
    if refused:
        pytest.skip("no processes can be started in this sandbox")


@pytest.mark.parametrize("disabled", [("files",), ("files", "user")])
async def test_a_workspace_on_the_disk_holds_no_more_than_it_may(disabled: tuple[str, ...]) -> None:
    async with session_of(Limits(workspace_mb=8), disabled=disabled) as session:
        assert (await run(session, "open('small', 'wb').write(bytes(1 << 20))")).stdout == "1048576\n"
        reply = await run(session, FILL + "import time; time.sleep(50)")
        assert reply.data is None
        assert "more than 8 MB" in reply.failure
        assert not session.usable


async def test_a_workspace_that_was_filled_before_the_end_of_a_run_ends_the_session() -> None:
    async with session_of(Limits(workspace_mb=8), disabled=["files"]) as session:
        reply = await run(session, FILL)
        with anyio.fail_after(60):
            while session.usable:
                reply = await run(session, "import time; time.sleep(0.05)")
        assert "more than 8 MB" in reply.failure


async def test_a_workspace_of_its_own_is_full_when_it_is_full() -> None:
    async with session_of(Limits(workspace_mb=8)) as session:
        reply = await run(session, FILL)
        if "more than 8 MB" in reply.failure:
            pytest.skip("sessions have no file system of their own here")
        assert "No space left on device" in reply.stderr
        assert (await run(session, "import os; os.remove('f0'); 'goes on'")).stdout == '"goes on"\n'


def test_what_a_workspace_holds_is_counted_with_links_and_without_following_any(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "large").write_bytes(bytes(3 << 20))
    workspace = tmp_path / "workspace"
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "a" / "link").symlink_to(tmp_path / "outside")
    assert disk.too_much(str(workspace), 1) == ""
    (workspace / "a" / "b" / "file").write_bytes(bytes(2 << 20))
    assert "more than 1 MB" in disk.too_much(str(workspace), 1)
    assert disk.too_much(str(workspace), 3) == ""
    with (workspace / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert disk.too_much(str(workspace), 3) == ""


def test_a_workspace_of_too_many_files_holds_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_FILES", 20)
    for number in range(20):
        (tmp_path / str(number)).touch()
    assert disk.too_much(str(tmp_path), 1) == ""
    (tmp_path / "one more").touch()
    assert "more than 20 files" in disk.too_much(str(tmp_path), 1)


def with_groups(sandbox: Sandbox) -> Sandbox:
    if "cgroup" not in sandbox.report.layers:
        sandbox.close()
        pytest.skip(f"no control groups here: {sandbox.report.missing['cgroup']}")
    return sandbox


async def test_all_processes_of_a_session_share_its_memory() -> None:
    limits = Limits(memory_mb=512, session_memory_mb=200)
    sandbox = with_groups(Sandbox(limits, warm=0))
    session = sandbox.take()
    hold = "import sys\nheld = b'x' * (120 << 20)\nprint('held', flush=True)\nsys.stdin.readline()"
    one = f"import subprocess, sys\nleft = [subprocess.Popen([sys.executable, '-c', {hold!r}], stdin=subprocess.PIPE, "
    one += "stdout=subprocess.PIPE) for _ in range(1)]\n[each.stdout.readline() for each in left]"
    assert (await run(session, one)).stderr == ""  # one may have it
    three = one.replace("range(1)", "range(3)") + "\nprint([each.communicate() and each.returncode for each in left])"
    reply = await run(session, three)
    assert reply.data is None or "-9" in reply.stdout
    neighbour = sandbox.take()
    assert (await run(neighbour, "len(b'x' * (120 << 20))")).stdout == f"{120 << 20}\n"
    for each in (session, neighbour):
        each.close()
    sandbox.close()


async def test_a_group_goes_with_its_session_and_all_with_the_sandbox() -> None:
    sandbox = with_groups(Sandbox(Limits(), warm=0))
    groups = sandbox._groups  # pyright: ignore[reportPrivateUsage]
    assert groups is not None
    folders = list(groups._own.folders)  # pyright: ignore[reportPrivateUsage]
    session = sandbox.take()
    assert (await run(session, "1")).stdout == "1\n"
    made = [path for folder in folders for path in folder.iterdir() if path.is_dir()]
    assert [(path / "cgroup.procs").read_text().split() for path in made].count([]) == 0
    session.close()
    for _ in range(3000):  # its last process is still dying
        sandbox.take().close()
        if not any(path.exists() for path in made):
            break
        await anyio.sleep(0.02)
    assert not any(path.exists() for path in made)
    sandbox.close()
    assert not any(folder.exists() for folder in folders)


def all_there(folders: list[str]) -> bool:
    return all(os.path.isdir(folder) for folder in folders)


async def test_a_killed_server_leaves_no_group() -> None:
    code = (
        "import anyio\nfrom coding_env.sandbox.launcher import Sandbox\n"
        "async def main():\n    sandbox = Sandbox(warm=2)\n    session = sandbox.take()\n"
        "    await session.request({'op': 'run', 'code': '1'}, 60)\n"
        "    print(*(sandbox._groups.folders if sandbox._groups else ()), flush=True)\n    await anyio.sleep(600)\n"
        "anyio.run(main)"
    )
    async with await anyio.open_process([sys.executable, "-c", code], stderr=None) as process:
        assert process.stdout is not None
        folders = (await process.stdout.receive()).decode().split()
        assert all_there(folders)
        process.kill()
    if not folders:
        pytest.skip("no control groups here")
    await until(lambda: not any(os.path.isdir(folder) for folder in folders))


async def test_groups_of_a_server_that_was_killed_are_swept() -> None:
    sandbox = with_groups(Sandbox(Limits(), warm=0))
    groups = sandbox._groups  # pyright: ignore[reportPrivateUsage]
    assert groups is not None
    left = [folder.parent / f"openenv-coding-{2**22 + 1}-left" for folder in groups._own.folders]  # pyright: ignore[reportPrivateUsage]
    for folder in left:
        (folder / "1").mkdir(parents=True)
    sandbox.close()
    again, _ = control_groups.find(Limits())
    assert again is not None
    again.close()
    assert not any(folder.exists() for folder in left)


def version_two(folder: Path, controllers: str, given_on: str) -> Path:
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(f"{controllers}\n")
    (folder / "cgroup.subtree_control").write_text(f"{given_on}\n")
    return folder


def test_in_the_second_version_the_servers_own_group_is_used_where_it_may_be(tmp_path: Path) -> None:
    """The kernel of this test may have the first version only: here the files say what the second's would."""
    find = control_groups._version_two  # pyright: ignore[reportPrivateUsage]
    ready = version_two(tmp_path / "ready", "cpu memory pids", "memory pids")
    assert find(ready, "/service") == ([ready], "")
    new = version_two(tmp_path / "new", "cpu memory pids", "")
    assert find(new, "/service") == ([new], "")
    assert (new / "cgroup.subtree_control").read_text() == "+memory +pids"
    poor = version_two(tmp_path / "poor", "cpu pids", "")
    assert find(poor, "/service")[0] == []
    assert "has not the controllers" in find(poor, "/service")[1]
    full = version_two(tmp_path / "full", "memory pids", "")
    (full / "cgroup.subtree_control").unlink()
    (full / "cgroup.subtree_control").symlink_to("/proc/version")  # which nobody can write to
    assert find(full, "/service")[0] == []
    assert "Delegate=yes" in find(full, "/service")[1]


async def test_a_process_joins_a_group_of_the_second_version_which_goes_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real file system of the second version, without controllers where these are the first version's."""
    mounts = [line.split() for line in (await anyio.Path("/proc/mounts").read_text()).splitlines()]
    unified = [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    if not unified or not os.access(unified[0], os.W_OK) or os.geteuid():
        pytest.skip("no control groups of the second version that this user may change")
    monkeypatch.setattr(control_groups, "CONTROLLERS", frozenset[str]())
    groups = control_groups.ControlGroups(unified[:1], Limits())
    group = groups.new()
    async with await anyio.open_process(["sleep", "600"]) as process:
        os.write(group.descriptors[0], str(process.pid).encode())
        assert (group.folders[0] / "cgroup.procs").read_text().split() == [str(process.pid)]
        group.close_descriptors()
        group.release()
        assert not group.remove()
        process.kill()
        await process.wait()
    groups.close()
    assert group.folders == []
    assert not groups._own.folders  # pyright: ignore[reportPrivateUsage]


async def test_sessions_keep_their_groups_when_the_first_process_is_started_anew() -> None:
    sandbox = with_groups(Sandbox(Limits(), warm=0))
    before = sandbox.take()
    assert (await run(before, "1")).stdout == "1\n"
    groups = sandbox._groups  # pyright: ignore[reportPrivateUsage]
    assert groups is not None
    process = sandbox._zygote  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    process.kill()
    process.wait()
    after = sandbox.take()
    assert (await run(after, "2")).stdout == "2\n"
    assert sandbox._groups is groups  # pyright: ignore[reportPrivateUsage]
    assert (await run(before, "3")).stdout == "3\n"
    for each in (before, after):
        each.close()
    sandbox.close()
