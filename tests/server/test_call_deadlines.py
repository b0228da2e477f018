"""A call past its deadline ends, and its slot is free, whatever the environment does."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest

from openenv_trl.environment import Environment, tool
from openenv_trl.errors import DeadlineExceededError, SessionLostError
from openenv_trl.server import session_life
from openenv_trl.server.capacity import CapacityLedger
from openenv_trl.server.execution import SingleThread, WorkerThreads
from openenv_trl.server.host import SessionHost
from openenv_trl.server.session import SessionEnd, SessionState
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State

pytestmark = pytest.mark.anyio


class Blocking(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    gate: ClassVar[threading.Event]
    entered: ClassVar[threading.Event]
    closed: ClassVar[threading.Semaphore]
    calls: ClassVar[list[str]]

    def __init__(self) -> None:
        # Its own test's: a thread that was left behind may outlive that.
        own = type(self)
        self.__dict__.update(gate=own.gate, entered=own.entered, closed=own.closed, calls=own.calls)

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        self._block("reset")
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        if action.metadata.get("wait"):
            self._block("step")
        return Observation()

    @property
    def state(self) -> State:
        self._block("state")
        return State()

    @tool
    def dig(self) -> Observation:
        """Dig."""
        self._block("tool")
        return Observation()

    def close(self) -> None:
        self.calls.append("close")
        self.closed.release()

    def _block(self, call: str) -> None:
        self.entered.set()
        self.gate.wait(30)
        self.calls.append(call)


class Async(Blocking):
    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self.entered.set()
        try:
            if action.metadata.get("wait"):
                with anyio.move_on_after(1000):  # a scope of its own, open when the deadline passes
                    await anyio.sleep_forever()
        except BaseException as error:
            self.calls.append(type(error).__name__)
            if action.metadata.get("swallow"):
                return Observation()
            if action.metadata.get("ignore"):
                await anyio.sleep_forever()
            raise
        return Observation()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Blocking.gate, Blocking.entered = threading.Event(), threading.Event()
    Blocking.closed, Blocking.calls = threading.Semaphore(0), []
    yield
    Blocking.gate.set()


WAIT = {"metadata": {"wait": True}}


def _host(environment: type[Blocking], most: int = 1, executor: Any = None, **settings: Any) -> SessionHost:
    threads = executor or WorkerThreads(most + 4)
    return SessionHost(environment, Action, CapacityLedger(most), threads, settings=AppSettings(**settings))


async def _until(condition: Callable[[], Any]) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in threads
            await anyio.sleep(0.001)


async def test_an_async_hook_is_cancelled_at_its_deadline_and_its_environment_closed() -> None:
    host = _host(Async)
    async with host.running():
        hosted = await host.open()
        with pytest.raises(DeadlineExceededError, match="its step took longer than its deadline") as caught:
            await hosted.step(WAIT, deadline_s=0.2)
        assert (caught.value.phase, caught.value.session_id) == ("step", hosted.session_id)
        assert Blocking.calls == ["CancelledError", "close"]
        assert host.status.active_sessions == 0
        assert hosted.session.end is SessionEnd.DEADLINE
        with pytest.raises(SessionLostError, match="its step passed its deadline"):
            await hosted.step({})
        await host.close((await host.open()).session_id)


@pytest.mark.parametrize("own_limit", [True, False])
async def test_a_deadline_that_ends_a_session_is_warned_of_with_its_limit(
    own_limit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host = _host(Async, step_timeout_s=0.02 if own_limit else 50)
    words = r"deadline of 0\.02 s \(OPENENV_TRL_STEP_TIMEOUT_S of the server\)," if own_limit else r"of 0\.02 s,"
    async with host.running():
        hosted = await host.open(transport="native")
        hosted.episode_id = "e-1"
        with pytest.raises(DeadlineExceededError, match=words):
            await hosted.step(WAIT, deadline_s=60 if own_limit else 0.02)
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    told = record.__dict__
    about = tuple(told[name] for name in ("session_id", "episode_id", "call", "transport"))
    assert about == (hosted.session_id, "e-1", "step", "native")
    assert re.search(words, record.getMessage())


async def test_the_callers_task_goes_on_after_a_deadline_as_if_it_was_never_cancelled() -> None:
    host = _host(Async)
    async with host.running():
        hosted = await host.open()
        with pytest.raises(DeadlineExceededError):
            await hosted.step(WAIT, deadline_s=0.2)
        task = asyncio.current_task()
        assert task is not None
        assert getattr(task, "cancelling", int)() == 0
        async with asyncio.timeout(30) if hasattr(asyncio, "timeout") else anyio.create_task_group():
            await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught


async def test_a_hook_that_keeps_its_cancellation_to_itself_is_past_its_deadline_all_the_same() -> None:
    host = _host(Async)
    async with host.running():
        hosted = await host.open()
        with pytest.raises(DeadlineExceededError):
            await hosted.step({"metadata": {"wait": True, "swallow": True}}, deadline_s=0.2)
        assert hosted.is_over


async def test_a_hook_that_ignores_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_life, "_AGAIN_S", 0.02)
    host = _host(Async)
    async with host.running():
        hosted = await host.open()
        with pytest.raises(DeadlineExceededError):
            await hosted.step({"metadata": {"wait": True, "ignore": True}}, deadline_s=0.2)
        task = asyncio.current_task()
        assert task is not None
        assert getattr(task, "cancelling", int)() == 0


class Deaf(Blocking):
    may_end: anyio.Event

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        while not self.may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.may_end.wait()
        self.calls.append("step")
        return Observation()


async def test_a_hook_that_never_heeds_its_cancellation_keeps_no_slot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_life, "_AGAIN_S", 0.02)
    Deaf.may_end = anyio.Event()
    host = _host(Deaf)
    async with host.running(), anyio.create_task_group() as tasks:
        hosted = await host.open()

        async def step() -> None:
            with pytest.raises(DeadlineExceededError):
                await hosted.step({}, deadline_s=0.2)

        tasks.start_soon(step)
        await _until(lambda: hosted.is_over)
        assert host.status.active_sessions == 0
        assert isinstance(hosted.interruption, DeadlineExceededError)
        assert "must not catch CancelledError" in caplog.text
        await host.close((await host.open()).session_id)
        Blocking.calls.clear()
        Deaf.may_end.set()
        await _until(lambda: "close" in Blocking.calls)
        assert Blocking.calls == ["step", "close"]
        await _until(lambda: hosted.session.state is SessionState.CLOSED)


@pytest.mark.parametrize("call", ["reset", "step", "state", "tool"])
async def test_a_thread_past_its_deadline_is_left_behind_and_its_slot_is_free_at_once(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = _host(Blocking)
    async with host.running():
        hosted = await host.open()
        calls = {
            "reset": lambda: hosted.reset({}, deadline_s=0.05),
            "step": lambda: hosted.step(WAIT, deadline_s=0.05),
            "state": lambda: hosted.state(deadline_s=0.05),
            "tool": lambda: hosted.call_tool("dig", {}, deadline_s=0.05),
        }
        with pytest.raises(DeadlineExceededError, match='EXECUTION = "process"'):
            await calls[call]()
        assert host.status.active_sessions == 0
        assert host.metrics.abandoned == 1
        assert 'Set EXECUTION = "process"' in caplog.text
        second = await host.open()  # and the thread that is stuck costs it nothing
        await second.step({}, deadline_s=30)
        with pytest.raises(SessionLostError):
            await hosted.step({})
        assert Blocking.calls == []
        Blocking.gate.set()
        await _until(lambda: Blocking.closed.acquire(blocking=False))
        assert Blocking.calls == [call, "close"]  # never under its call
        await second.close()


async def test_the_servers_own_limit_holds_for_clients_that_give_none() -> None:
    host = _host(Blocking, step_timeout_s=0.05)
    async with host.running():
        for deadline_s in (None, 1000.0):
            hosted = await host.open()
            with pytest.raises(DeadlineExceededError):
                await hosted.step(WAIT, deadline_s=deadline_s)


async def test_a_call_in_time_has_no_deadline_left_behind() -> None:
    host = _host(Async)
    async with host.running(), host.session() as hosted:
        for _ in range(3):
            await hosted.step({}, deadline_s=0.2)
        await anyio.sleep(0.3)
        await hosted.step({}, deadline_s=30)
        await hosted.step({}, deadline_s=0.2)
        assert not hosted.is_over


async def test_a_later_deadline_that_comes_earlier_is_kept_too() -> None:
    host = _host(Async)
    async with host.running():
        hosted = await host.open()
        await hosted.step({}, deadline_s=1000)
        with pytest.raises(DeadlineExceededError):
            await hosted.step(WAIT, deadline_s=0.2)


async def test_a_client_that_left_its_sync_step_frees_the_slot_at_the_deadline() -> None:
    host = _host(Blocking, step_timeout_s=0.2)
    async with host.running():
        with anyio.CancelScope() as client:

            async def leave() -> None:
                await _until(Blocking.entered.is_set)
                client.cancel()

            async with anyio.create_task_group() as tasks, host.session() as hosted:
                tasks.start_soon(leave)
                with pytest.raises(DeadlineExceededError):
                    await hosted.step(WAIT)
        fresh = await host.open(wait_s=30)
        assert host.metrics.abandoned == 1
        assert Blocking.calls == []
        await fresh.close()


async def test_a_client_that_left_its_async_step_frees_the_slot_at_once() -> None:
    host = _host(Async)
    async with host.running():
        async with anyio.create_task_group() as tasks:

            async def play() -> None:
                async with host.session() as hosted:
                    await hosted.step(WAIT)

            tasks.start_soon(play)
            await _until(Blocking.entered.is_set)
            tasks.cancel_scope.cancel()
        assert Blocking.calls == ["CancelledError", "close"]
        assert host.status.active_sessions == 0


async def test_a_task_that_is_made_to_end_leaves_its_thread_and_no_slot() -> None:
    host = _host(Blocking)
    async with host.running():
        hosted = await host.open()
        async with anyio.create_task_group() as tasks:
            found: list[asyncio.Task[Any]] = []

            async def play() -> None:
                task = asyncio.current_task()
                assert task is not None
                found.append(task)
                await hosted.step(WAIT)

            tasks.start_soon(play)
            await _until(Blocking.entered.is_set)
            found[0].cancel()  # as code does that knows no cancel scopes
        assert host.status.active_sessions == 0
        assert hosted.session.end is SessionEnd.CANCELLED


async def test_cancelling_a_call_ends_it_and_its_session() -> None:
    host = _host(Async)
    async with host.running():
        hosted = await host.open()
        hosted.cancel_call()  # none runs: nothing happens
        async with anyio.create_task_group() as tasks:

            async def play() -> None:
                with pytest.raises(SessionLostError, match="cancelled by its client"):
                    await hosted.step(WAIT)

            tasks.start_soon(play)
            await _until(Blocking.entered.is_set)
            hosted.cancel_call()
        assert hosted.is_over


async def test_a_close_that_hangs_keeps_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_life, "_CLOSE_GRACE_S", 0.05)

    class Clinging(Blocking):
        def close(self) -> None:
            self.gate.wait(30)
            super().close()

    host = _host(Clinging)
    async with host.running():
        hosted = await host.open()
        await hosted.close()
        assert hosted.is_over
        assert host.status.active_sessions == 0
        assert host.metrics.abandoned == 1


async def test_a_stuck_call_of_an_unknown_class_does_not_block_the_next_session() -> None:
    host = _host(Blocking, executor=SingleThread(5))
    async with host.running():
        hosted = await host.open()
        with pytest.raises(DeadlineExceededError):
            await hosted.step(WAIT, deadline_s=0.05)
        fresh = await host.open()
        await fresh.step({})
        await fresh.close()


async def test_a_stuck_call_of_a_class_that_needs_one_thread_gives_its_slot_back() -> None:
    class Single(Blocking):
        REQUIRES_SINGLE_THREAD_EXECUTOR = True

    host = _host(Single, executor=SingleThread(5))
    async with host.running():
        hosted = await host.open()
        with pytest.raises(DeadlineExceededError):
            await hosted.step(WAIT, deadline_s=0.05)
        assert host.status.active_sessions == 0
        Blocking.gate.set()
        await _until(lambda: Blocking.closed.acquire(blocking=False))
        fresh = await host.open()
        await fresh.step({})
        await fresh.close()
