"""Where an environment's code runs, by the setting of its class or of its server."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest

from openenv_trl.environment import Environment, tool
from openenv_trl.errors import EnvironmentExecutionError, EnvironmentFactoryError
from openenv_trl.server.capacity import CapacityLedger
from openenv_trl.server.execution import WorkerThreads
from openenv_trl.server.host import SessionHost
from openenv_trl.server.settings import AppSettings, Execution
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State

pytestmark = pytest.mark.anyio


class Telling(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    where: ClassVar[dict[str, int]]
    loops: ClassVar[set[int]]

    def __init__(self) -> None:
        self._here("constructor")

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        self._here("reset")
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self._here("step")
        return Observation()

    @property
    def state(self) -> State:
        self._here("state")
        return State()

    @tool
    def poke(self) -> Observation:
        """Poke."""
        self._here("tool")
        return Observation()

    def get_metadata(self) -> EnvironmentMetadata:
        self._here("metadata")
        return EnvironmentMetadata(name="telling", description="Tells where it is")

    def close(self) -> None:
        self._here("close")

    def _here(self, what: str) -> None:
        self.where[what] = threading.get_ident()


class InLoop(Telling):
    EXECUTION = "loop"


class TellingAsync(Telling):
    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        self.loops.add(id(asyncio.get_running_loop()))
        self._here("reset")
        return Observation()

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self.loops.add(id(asyncio.get_running_loop()))
        await anyio.lowlevel.checkpoint()
        self._here("step")
        return Observation()

    @tool
    async def stroke(self) -> Observation:
        """Stroke."""
        self.loops.add(id(asyncio.get_running_loop()))
        self._here("async tool")
        return Observation()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Telling.where, Telling.loops = {}, set()


def _host(factory: Callable[[], Any], execution: Execution | None = None) -> SessionHost:
    settings = AppSettings(execution=execution)
    return SessionHost(factory, Action, CapacityLedger(2), WorkerThreads(6), settings=settings)


async def _use(host: SessionHost) -> None:
    async with host.running():
        await host.metadata()
        async with host.session() as hosted:
            await hosted.reset({})
            await hosted.step({})
            await hosted.state()
            await hosted.call_tool("poke", {})
            if "stroke" in {each.name for each in hosted.tools}:
                await hosted.call_tool("stroke", {})


@pytest.mark.parametrize(
    ("factory", "execution"),
    [(InLoop, None), (Telling, "loop"), (TellingAsync, "loop"), (functools.partial(InLoop), None)],
)
async def test_loop_is_all_on_the_event_loop(factory: Callable[[], Any], execution: Execution | None) -> None:
    await _use(_host(factory, execution))
    assert len(Telling.where) >= 7
    assert set(Telling.where.values()) == {threading.get_ident()}


async def test_the_servers_setting_wins_over_the_class() -> None:
    await _use(_host(InLoop, "thread"))
    assert threading.get_ident() not in Telling.where.values()


async def test_thread_is_nothing_on_the_servers_event_loop() -> None:
    await _use(_host(TellingAsync, "thread"))
    assert len(Telling.where) == 8
    assert threading.get_ident() not in Telling.where.values()
    assert len(Telling.loops) == 1, "what was opened in one call must work in the next"
    assert id(asyncio.get_running_loop()) not in Telling.loops


async def test_auto_is_async_hooks_on_the_loop_and_the_rest_in_threads() -> None:
    await _use(_host(TellingAsync, "auto"))
    here = threading.get_ident()
    on_loop = {what for what, thread in Telling.where.items() if thread == here}
    assert on_loop == {"reset", "step", "state", "async tool"}


async def test_a_function_that_builds_tells_with_its_first_environment() -> None:
    def build() -> Telling:
        return InLoop()

    host = _host(build)
    async with host.running():
        for _ in range(2):
            async with host.session() as hosted:
                await hosted.reset({})
                await hosted.step({})
    assert Telling.where["step"] == Telling.where["constructor"] == threading.get_ident()


async def test_a_call_whose_hook_does_not_suspend_does_not_suspend_either() -> None:
    for factory, execution in ((InLoop, None), (TellingAsync, "auto")):
        host = _host(factory, execution)
        async with host.running(), host.session() as hosted:
            coroutine = hosted.reset({}, deadline_s=60)
            with pytest.raises(StopIteration) as ended:
                coroutine.send(None)
            assert isinstance(ended.value.value, Observation)


class Leaving(Telling):
    error: type[BaseException] = SystemExit

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise self.error("left")


class LeavingAsync(TellingAsync):
    error: type[BaseException] = SystemExit

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        await anyio.lowlevel.checkpoint()
        raise self.error("left")


@pytest.mark.parametrize("execution", ["loop", "thread", "auto", "async"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_an_environment_that_exits_does_not_end_the_server(execution: Any, error: type[BaseException]) -> None:
    leaving = LeavingAsync if execution == "async" else Leaving
    host = _host(type("Leaving", (leaving,), {"error": error}), "auto" if execution == "async" else execution)
    async with host.running(), host.session() as hosted:
        with pytest.raises(EnvironmentExecutionError, match=rf"{error.__name__}|^left$"):
            await hosted.step({})
        await hosted.reset({})


class Broken(Telling):
    error: type[BaseException] = SystemExit

    def __init__(self) -> None:
        raise self.error("no licence")


@pytest.mark.parametrize("execution", ["loop", "thread", "auto"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_a_factory_that_exits_is_a_factory_that_failed(execution: Execution, error: type[BaseException]) -> None:
    host = _host(type("Broken", (Broken,), {"error": error}), execution)
    async with host.running():
        with pytest.raises(EnvironmentFactoryError):
            await host.open()
        assert host.status.active_sessions == 0
