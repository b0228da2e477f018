"""Where the system is short of processes, sessions are waited for or refused, and no solution is judged by that."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager

import anyio
import pytest
from coding_env.sandbox import control_groups, starting
from coding_env.sandbox.launcher import Sandbox
from coding_env.sandbox.limits import Limits
from coding_env.server import grading
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.settings import EpisodeSettings

from openenv_trl.errors import EnvironmentExecutionError

pytestmark = pytest.mark.anyio
ADD = {"solution.py": "def add(a, b):\n    return a + b\n"}
TESTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]
SUM = {"op": "run", "code": "40 + 2"}
Allow = Callable[[int], None]


@contextmanager
def shortage(sandbox: Sandbox) -> Generator[Allow]:
    """Puts the process that sessions are forked from where the number of processes can be limited."""
    groups, why = control_groups.find(Limits())
    if groups is None:
        pytest.skip(f"no control groups: {why}")
    group = groups.new()
    process = sandbox._zygote  # pyright: ignore[reportPrivateUsage]
    assert process is not None

    def allow(number: int) -> None:
        for folder in group.folders:
            if (folder / "pids.max").exists():
                (folder / "pids.max").write_text(str(number))

    for folder in group.folders:
        (folder / "cgroup.procs").write_text(str(process.pid))
    yield allow
    sandbox.close()
    group.close_descriptors()
    group.release()
    groups.close()


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    # Its sessions have no groups of their own: all count in that of the test.
    made = Sandbox(Limits(), warm=0, disabled=["cgroup"])
    yield made
    made.close()


def first_process(sandbox: Sandbox) -> int:
    process = sandbox._zygote  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    return process.pid


@pytest.mark.parametrize("allowed", [1, 2])
async def test_a_session_that_cannot_be_started_says_so_and_the_next_is_there(sandbox: Sandbox, allowed: int) -> None:
    with shortage(sandbox) as allow:
        before = first_process(sandbox)
        allow(allowed)
        session = sandbox.take()
        reply = await session.request(SUM, 60)
        assert (reply.data, reply.unstarted) == (None, True)
        assert "unavailable" in reply.failure
        session.close()
        allow(20)
        again = sandbox.take()
        assert (await again.request(SUM, 60)).stdout == "42\n"
        again.close()
        assert first_process(sandbox) == before


async def test_a_session_whose_new_worker_cannot_be_started_keeps_its_files(sandbox: Sandbox) -> None:
    with shortage(sandbox) as allow:
        allow(20)
        session = sandbox.take()
        assert (await session.request({"op": "write", "path": "kept", "text": "here"}, 60)).data is not None
        session.kill()
        allow(1)
        assert (await session.request(SUM, 60)).unstarted
        allow(20)
        reply = await session.request({"op": "run", "code": "open('kept').read()"}, 60)
        assert (reply.stdout, reply.unstarted) == ('"here"\n', False)
        session.close()


async def test_an_end_of_the_codes_own_is_no_shortage(sandbox: Sandbox) -> None:
    session = sandbox.take()
    reply = await session.request({"op": "run", "code": "import os; os._exit(3)"}, 60)
    assert (reply.data, reply.unstarted) == (None, False)
    assert "exit code 3" in reply.failure
    session.close()


async def test_a_grading_waits_for_processes(sandbox: Sandbox) -> None:
    with shortage(sandbox) as allow:
        allow(4)
        async with anyio.create_task_group() as group:

            async def room() -> None:
                await anyio.sleep(0.5)  # what is waited for, not what waits
                allow(20)

            group.start_soon(room)
            verdict = await grading.grade(sandbox, ADD, TESTS, timeout_s=30, test_timeout_s=5)
        assert verdict.outcomes == ["", ""]


async def test_a_grading_that_cannot_be_done_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "START_TIMEOUT_S", 0.3)
    environment = CodingEnvironment(EpisodeSettings())
    environment._sandbox = sandbox = Sandbox(Limits(), warm=0, disabled=["cgroup"])  # pyright: ignore[reportPrivateUsage]
    with shortage(sandbox) as allow:
        allow(20)
        await environment.reset_async(prompt="Add.", tests=TESTS)
        allow(1)
        with pytest.raises(EnvironmentExecutionError, match="Nothing was run or judged") as raised:
            await environment.run_tests(ADD["solution.py"])
        assert raised.value.retryable
        assert (environment.state.step_count, environment.state.attempts) == (0, 0)
        allow(20)
        assert (await environment.run_tests(ADD["solution.py"])).reward == 1.0
        environment.close()


async def test_no_more_are_judged_at_once_than_may_be(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with shortage(sandbox) as allow:
        monkeypatch.setattr(starting, "START_TIMEOUT_S", 0.0)
        allow(24)  # itself, and two gradings of two sessions of two processes, with those that are just ending
        verdicts: list[grading.Verdict] = []

        async def one() -> None:
            verdicts.append(await grading.grade(sandbox, ADD, TESTS, timeout_s=30, test_timeout_s=5, concurrent=2))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(one)
        assert [verdict.share for verdict in verdicts] == [1.0] * 8


async def test_threads_of_a_session_are_counted_where_the_kernel_counts_those_of_all() -> None:
    sandbox = Sandbox(Limits(), warm=0, disabled=["files", "user"])
    session = sandbox.take()
    code = (
        "import threading, time\n"
        "for _ in range(40):\n    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    )
    await session.request({"op": "run", "code": code}, 60)
    with anyio.fail_after(30):
        while session.is_sound():  # noqa: ASYNC110
            await anyio.sleep(0.02)
    reply = await session.request(SUM, 60)
    assert "threads, and 16 are allowed" in reply.failure
    assert not reply.unstarted
    session.close()
    sandbox.close()
