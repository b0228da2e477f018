"""Environments in processes of their own: as any other to their callers, and gone when they are to go."""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    EnvironmentFactoryError,
    SessionLostError,
)
from openenv_trl.server import create_app, process_environment
from openenv_trl.server.capacity import CapacityLedger
from openenv_trl.server.execution import WorkerThreads
from openenv_trl.server.host import SessionHost
from openenv_trl.server.process_launcher import ProcessLauncher
from openenv_trl.server.session import SessionEnd
from openenv_trl.server.settings import AppSettings, Execution
from openenv_trl.types import ServerMode

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module of environments, where a worker process can import it."""
    folder = tmp_path_factory.mktemp("environments")
    shutil.copy(Path(__file__).with_name("process_module.py"), folder / "process_module_under_test.py")
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("process_module_under_test")
    finally:
        sys.path.remove(str(folder))


def _host(environments: Any, factory: Callable[[], Any], most: int = 2, execution: Execution | None = None) -> Any:
    ledger, threads = CapacityLedger(most), WorkerThreads(most + 4)
    return SessionHost(factory, environments.Order, ledger, threads, settings=AppSettings(execution=execution))


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + 60
    while any(map(_runs, pids)):
        assert time.monotonic() < deadline, "still running"
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["Worker", "AsyncWorker"])
async def test_all_of_an_environment_works_from_its_process(environments: Any, name: str) -> None:
    host = _host(environments, getattr(environments, name))
    async with host.running(), host.session() as hosted:
        report = await hosted.reset({"level": 3, "unknown": 1})
        assert (report.text, report.pid) == ("level 3", hosted.worker_pid)
        assert hosted.worker_pid != os.getpid()
        assert (await hosted.step({"what": "look"})).text == "look"
        assert (await hosted.state())["step_count"] == 1
        assert await hosted.call_tool("add", {"a": 1, "b": 2}) == 3
        assert {each.name for each in hosted.tools} >= {"add"}
        assert await hosted.call_method("room", "hall") == f"hall of {hosted.worker_pid}"
        assert len((await hosted.step({"what": "large"})).text) == 3_000_000
        assert (await host.metadata()).name == "worker"
        if name == "AsyncWorker":
            assert await hosted.call_tool("wait", {}) == "waited"


async def test_two_environments_are_two_processes_that_draw_other_numbers(environments: Any) -> None:
    host = _host(environments, environments.Worker)
    async with host.running(), host.session() as one, host.session() as other:
        assert one.worker_pid != other.worker_pid
        assert (await one.reset({})).value != (await other.reset({})).value


async def test_errors_are_those_of_an_environment_in_this_process(
    environments: Any, caplog: pytest.LogCaptureFixture
) -> None:
    host = _host(environments, environments.Worker)
    async with host.running(), host.session() as hosted:
        with pytest.raises(EnvironmentExecutionError, match="no such room"):
            await hosted.step({"what": "raise"})
        assert 'raise LookupError("no such room")' in caplog.text  # the traceback is the environment's own
        with pytest.raises(ActionValidationError, match="not that door") as caught:
            await hosted.step({"what": "refuse"})
        assert caught.value.errors == [{"loc": ["what"], "msg": "not that door"}]
        with pytest.raises(ActionValidationError):
            await hosted.call_tool("add", {"a": "one"})
        with pytest.raises(EnvironmentExecutionError, match="SystemExit"):
            await hosted.step({"what": "sys.exit"})
        with pytest.raises(EnvironmentExecutionError, match="cannot leave the environment's process"):
            await hosted.step({"what": "unsendable"})
        assert (await hosted.step({"what": "still there"})).text == "still there"


@pytest.mark.parametrize("name", ["Worker", "AsyncWorker"])
async def test_a_step_past_its_deadline_is_killed_with_all_that_it_started(
    environments: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = _host(environments, getattr(environments, name), most=1)
    async with host.running():
        hosted = await host.open()
        pid, child = hosted.worker_pid, (await hosted.step({"what": "child"})).value
        assert _runs(pid)
        assert _runs(child)
        with pytest.raises(DeadlineExceededError):
            await hosted.step({"what": "hang"}, deadline_s=0.1)
        assert [each.levelname for each in caplog.records if "deadline of 0.1 s" in each.getMessage()] == ["WARNING"]
        assert host.status.active_sessions == 0
        assert host.metrics.abandoned == 0
        await anyio.to_thread.run_sync(_wait_until_gone, pid, child)
        with pytest.raises(SessionLostError, match="passed its deadline"):
            await hosted.step({})
        await host.close((await host.open()).session_id)


async def test_a_client_that_leaves_in_a_step_leaves_no_process(environments: Any) -> None:
    host = _host(environments, environments.Worker, most=1)
    async with host.running():
        with anyio.CancelScope() as client:
            async with host.session() as hosted:
                pid = hosted.worker_pid
                client.deadline = anyio.current_time() + 0.5  # from here on: a process may take its time to start
                await hosted.step({"what": "hang"})
        assert client.cancelled_caught
        assert host.status.active_sessions == 0
        await anyio.to_thread.run_sync(_wait_until_gone, pid)


async def test_a_process_that_ends_in_a_call_is_told_with_its_exit_code(environments: Any) -> None:
    host = _host(environments, environments.Worker, most=1)
    async with host.running():
        hosted = await host.open()
        with pytest.raises(SessionLostError, match="its environment's process ended with exit code 3 in step"):
            await hosted.step({"what": "exit"})
        assert hosted.session.end is SessionEnd.WORKER_DIED
        assert host.status.active_sessions == 0
        with pytest.raises(SessionLostError, match="exit code 3"):
            await hosted.step({})


def test_a_process_that_was_given_up_while_it_built_its_environment_ends_quietly(environments: Any) -> None:
    process = ProcessLauncher(environments.Worker).start(ServerMode.SIMULATION)
    process.way.close()
    assert process.exit_code(30) == -signal.SIGKILL
    process.forget()


async def test_a_process_that_dies_between_two_calls_is_noticed_at_once(environments: Any) -> None:
    host = _host(environments, environments.Worker, most=1)
    async with host.running():
        hosted = await host.open()
        ended = anyio.Event()
        hosted.on_end = ended.set
        os.kill(hosted.worker_pid, signal.SIGKILL)
        with anyio.fail_after(20):
            await ended.wait()
        with pytest.raises(SessionLostError, match="was killed by SIGKILL"):
            await hosted.step({})
        await host.close((await host.open()).session_id)


async def test_a_close_closes_the_environment_once_and_ends_its_process(environments: Any, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    host = _host(environments, environments.Worker)
    async with host.running():
        hosted = await host.open()
        pid, child = hosted.worker_pid, (await hosted.step({"what": "child"})).value
        await hosted.step({"what": f"close into {closed}"})
        await hosted.close()
        assert host.status.active_sessions == 0
        assert closed.read_text() == f"{pid}\n"
        await anyio.to_thread.run_sync(_wait_until_gone, pid, child)


async def test_a_close_that_hangs_is_killed(environments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_environment, "_CLOSE_GRACE_S", 0.1)
    host = _host(environments, environments.Clinging)
    async with host.running():
        hosted = await host.open()
        pid = hosted.worker_pid
        await hosted.close()
        assert hosted.is_over
        await anyio.to_thread.run_sync(_wait_until_gone, pid)


@pytest.mark.parametrize(("name", "logged"), [("Unbuildable", "no display"), ("Crashing", "exit code 5")])
async def test_a_factory_that_fails_is_a_factory_that_failed(
    environments: Any, name: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = _host(environments, getattr(environments, name))
    async with host.running():
        with pytest.raises(EnvironmentFactoryError, match=name):
            await host.open()
        assert logged in caplog.text
        assert host.status.active_sessions == 0


async def test_a_factory_function_works_too(environments: Any) -> None:
    for factory in (environments.build, functools.partial(environments.Worker)):
        host = _host(environments, factory)
        async with host.running():
            for _ in range(2):
                async with host.session() as hosted:
                    assert hosted.worker_pid not in (None, os.getpid())


async def test_a_class_runs_in_processes_by_the_servers_setting(environments: Any) -> None:
    class_of_threads = environments.Worker
    host = _host(environments, class_of_threads, execution="thread")
    async with host.running(), host.session() as hosted:
        assert hosted.worker_pid is None


def test_a_factory_that_cannot_be_sent_is_refused_at_once(environments: Any) -> None:
    with pytest.raises(ConfigurationError, match="no lambda, and nothing defined inside a function"):
        create_app(
            lambda: environments.Worker(),
            environments.Order,
            environments.Report,
            settings=AppSettings(execution="process"),
        )


def test_no_thread_waits_for_an_idle_process(environments: Any, serve: Callable[..., Any]) -> None:
    import threading

    app = create_app(environments.Worker, environments.Order, environments.Report, max_concurrent_envs=8)
    served = serve(app)
    connections = [served.socket() for _ in range(8)]
    for connection in connections:
        connection.send('{"type":"reset"}')
        assert json.loads(connection.recv(timeout=60))["type"] == "observation"
    before = threading.active_count()
    for connection in connections:
        for _ in range(3):
            connection.send('{"type":"step","data":{"what":"on"}}')
            assert json.loads(connection.recv(timeout=60))["data"]["observation"]["text"] == "on"
    assert threading.active_count() <= before


def test_a_socket_dropped_during_a_step_frees_the_slot_at_once(environments: Any, serve: Callable[..., Any]) -> None:
    served = serve(create_app(environments.Worker, environments.Order, environments.Report))
    connection = served.socket()
    connection.send('{"type":"reset"}')
    pid = json.loads(connection.recv(timeout=60))["data"]["observation"]["pid"]
    connection.send('{"type":"step","data":{"what":"hang"}}')
    connection.close()
    _wait_until_gone(pid)
    for _ in range(2000):  # the server's closing of the refused ones is the clock
        again = served.socket()
        again.send('{"type":"state"}')
        if json.loads(again.recv(timeout=60))["type"] == "state":
            return
    raise AssertionError("the slot was never freed")


_SERVER = """
import anyio, sys, time
from process_module_under_test import Order, Worker
from openenv_trl.server.capacity import CapacityLedger
from openenv_trl.server.execution import WorkerThreads
from openenv_trl.server.host import SessionHost

async def main():
    host = SessionHost(Worker, Order, CapacityLedger(2), WorkerThreads(6))
    async with host.running():
        idle, busy = await host.open(), await host.open()
        child = await busy.step({"what": "child"})
        print(idle.worker_pid, busy.worker_pid, child.value, flush=True)
        await busy.step({"what": "hang"})

if __name__ == "__main__":
    anyio.run(main)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_server_that_is_killed_leaves_no_process(environments: Any, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(_SERVER)
    variables = {**os.environ, "PYTHONPATH": str(Path(environments.__file__).parent)}
    server = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=variables)
    try:
        assert server.stdout is not None
        pids = [int(each) for each in server.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(_runs, pids))
        server.kill()
        server.wait(20)
        _wait_until_gone(*pids)
    finally:
        server.kill()
        server.wait(20)
        assert server.stdout is not None
        server.stdout.close()
