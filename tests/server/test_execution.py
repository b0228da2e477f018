"""Environment code runs where it cannot stop the server, and never twice at once for one environment."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from openenv_trl.environment import Environment, tool
from openenv_trl.server import create_app
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State

Ask = Callable[[Any, str], str]
RESET, STEP, STATE = '{"type":"reset"}', '{"type":"step","data":{}}', '{"type":"state"}'


class Where(Observation):
    thread: str = ""


class Sync(Environment[Action, Where, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    gate: threading.Event
    entered: threading.Event
    overlaps = 0
    threads: list[int]

    def __init__(self) -> None:
        self.inside = False
        self.threads.append(threading.get_ident())

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Where:
        return self._where()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Where:
        if self.inside:
            type(self).overlaps += 1
        self.inside = True
        self.entered.set()
        self.gate.wait(30)
        self.inside = False
        return self._where()

    @property
    def state(self) -> State:
        if self.inside:
            type(self).overlaps += 1
        return State(thread=threading.current_thread().name)  # type: ignore[call-arg]

    def close(self) -> None:
        self.threads.append(threading.get_ident())

    def _where(self) -> Where:
        self.threads.append(threading.get_ident())
        return Where(thread=threading.current_thread().name)


class Async(Sync):
    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Where:
        return self._where()

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Where:
        await anyio.lowlevel.checkpoint()
        return self._where()

    @tool
    def sync_tool(self) -> Where:
        return self._where()

    @tool
    async def async_tool(self) -> Where:
        await anyio.lowlevel.checkpoint()
        return self._where()


class SingleThreaded(Sync):
    REQUIRES_SINGLE_THREAD_EXECUTOR = True


class SlowToBuild(Sync):
    def __init__(self) -> None:
        self.entered.set()
        self.gate.wait(30)
        super().__init__()

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="slow", description="Slow to build")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    for each in (Sync, Async, SingleThreaded, SlowToBuild):
        each.gate, each.entered, each.overlaps, each.threads = threading.Event(), threading.Event(), 0, []
    Sync.gate.set()
    yield
    for each in (Sync, Async, SingleThreaded, SlowToBuild):
        each.gate.set()


def _thread(answer: str) -> str:
    data = json.loads(answer)["data"]
    return data["observation"]["thread"] if "observation" in data else data["thread"]


def _health(served: Any) -> Any:
    with urllib.request.urlopen(f"{served.url}/health", timeout=60) as response:
        return json.load(response)


def test_sync_hooks_run_off_the_event_loop(serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(Sync, Action, Where)).socket()
    loop = next(t.name for t in threading.enumerate() if t.name.startswith("Thread-") and "run" in t.name)
    for message in (RESET, STEP, STATE):
        assert _thread(ask(connection, message)) != loop


def test_async_hooks_run_on_the_event_loop(serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(Async, Action, Where)).socket()
    reset, step, state = (_thread(ask(connection, message)) for message in (RESET, STEP, STATE))
    assert reset == step == state
    assert "AnyIO" not in reset


def test_a_tool_runs_where_its_kind_says(serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(Async, Action, Where)).socket()
    on_loop = _thread(ask(connection, RESET))
    call = '{{"type":"step","data":{{"type":"call_tool","tool_name":"{}"}}}}'
    assert _thread(ask(connection, call.format("async_tool"))) == on_loop
    assert _thread(ask(connection, call.format("sync_tool"))) != on_loop


def test_a_state_asked_during_a_step_is_read_after_it(serve: Callable[..., Any]) -> None:
    connection = serve(create_app(Sync, Action, Where)).socket()
    Sync.gate.clear()
    connection.send(STEP)
    assert Sync.entered.wait(30)
    connection.send(STATE)
    connection.send(STEP)
    Sync.gate.set()
    kinds = [json.loads(connection.recv(timeout=30))["type"] for _ in range(3)]
    assert kinds == ["observation", "state", "observation"]
    assert Sync.overlaps == 0


def test_a_blocked_step_stops_nobody_else(serve: Callable[..., Any], ask: Ask) -> None:
    served = serve(create_app(Sync, Action, Where, max_concurrent_envs=3))
    blocked, other, third = served.socket(), served.socket(), served.socket()
    Sync.gate.clear()
    blocked.send(STEP)
    assert Sync.entered.wait(30)
    assert json.loads(ask(other, RESET))["type"] == "observation"
    assert json.loads(ask(third, STATE))["type"] == "state"
    assert _health(served) == {"status": "healthy"}


def test_a_slow_constructor_stops_nobody_else(serve: Callable[..., Any]) -> None:
    served = serve(create_app(SlowToBuild, Action, Where))
    connection = served.socket()
    assert SlowToBuild.entered.wait(30)
    assert _health(served) == {"status": "healthy"}
    SlowToBuild.gate.set()
    connection.send(STATE)
    assert json.loads(connection.recv(timeout=30))["type"] == "state"


def test_metadata_that_take_an_instance_stop_nobody_else(serve: Callable[..., Any]) -> None:
    served = serve(create_app(SlowToBuild, Action, Where))
    found: list[Any] = []

    def fetch() -> None:
        with urllib.request.urlopen(f"{served.url}/metadata", timeout=30) as response:
            found.append(json.load(response)["name"])

    fetching = threading.Thread(target=fetch)
    fetching.start()
    assert SlowToBuild.entered.wait(30)
    assert _health(served) == {"status": "healthy"}
    SlowToBuild.gate.set()
    fetching.join(30)
    assert found == ["slow"]


def test_all_of_a_single_threaded_class_happens_in_one_thread(serve: Callable[..., Any], ask: Ask) -> None:
    SingleThreaded.gate.set()
    served = serve(create_app(SingleThreaded, Action, Where, max_concurrent_envs=4))
    connections = [served.socket() for _ in range(4)]
    for connection in connections:
        for message in (RESET, STEP, STATE):
            ask(connection, message)
        connection.send('{"type":"close"}')
        with pytest.raises(Exception, match="1000"):
            connection.recv(timeout=30)
    assert len(SingleThreaded.threads) == 16
    assert len(set(SingleThreaded.threads)) == 1


def test_an_idle_session_holds_no_thread(serve: Callable[..., Any], ask: Ask) -> None:
    before = _environment_threads()
    served = serve(create_app(Sync, Action, Where, max_concurrent_envs=40))
    connections = []
    for _ in range(40):
        connections.append(served.socket())
        ask(connections[-1], RESET)
    assert _environment_threads() <= before + 3


def _environment_threads() -> int:
    return sum(thread.name.startswith(("AnyIO", "environment")) for thread in threading.enumerate())


def test_as_many_sync_steps_run_at_once_as_there_are_sessions(serve: Callable[..., Any]) -> None:
    together = threading.Barrier(24, timeout=30)

    class Meeting(Sync):
        def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Where:
            together.wait()
            return Where()

    served = serve(create_app(Meeting, Action, Where, max_concurrent_envs=24))
    connections = [served.socket() for _ in range(24)]
    for connection in connections:
        connection.send(STEP)
    assert all(json.loads(each.recv(timeout=30))["type"] == "observation" for each in connections)
