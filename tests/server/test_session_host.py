"""Sessions of a host: found, held, released, queued, reaped, drained. Each session is one environment at all times."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest

from openenv_trl.environment import Environment, tool
from openenv_trl.errors import (
    DeadlineExceededError,
    EnvironmentFactoryError,
    SessionCapacityError,
    SessionLostError,
    SessionNotFoundError,
    SessionStateError,
)
from openenv_trl.server.capacity import CapacityLedger
from openenv_trl.server.execution import WorkerThreads
from openenv_trl.server.host import SessionHost
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.session import SessionEnd, SessionState
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State

pytestmark = pytest.mark.anyio


class Watched(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    gate: ClassVar[anyio.Event]
    entered: ClassVar[list[str]]
    live: ClassVar[int]
    inside = 0

    def __init__(self) -> None:
        type(self).live += 1
        self.closed = False

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        assert not self.closed
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise NotImplementedError

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        assert not self.closed
        self.inside += 1
        assert self.inside == 1, "two calls at once"
        self.entered.append(str(action.metadata.get("name", "")))
        try:
            if action.metadata.get("wait"):
                await self.gate.wait()
        finally:
            self.inside -= 1
        return Observation(done=bool(action.metadata.get("done")))

    @property
    def state(self) -> State:
        assert self.inside == 0, "state was read during a call"
        return State(step_count=len(self.entered))

    @tool
    def poke(self) -> Observation:
        """Poke."""
        assert self.inside == 0, "two calls at once"
        return Observation()

    def close(self) -> None:
        assert self.inside == 0
        self.closed = True
        type(self).live -= 1


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Watched.gate, Watched.entered, Watched.live = anyio.Event(), [], 0
    yield
    assert Watched.live == 0, "an environment was left open"


def _host(most: int = 4, factory: Any = Watched, session_timeout: float | None = None, **settings: Any) -> SessionHost:
    executor = WorkerThreads(most + 4)
    host_settings = AppSettings(**settings)
    ledger = CapacityLedger(most)
    return SessionHost(factory, Action, ledger, executor, settings=host_settings, session_timeout=session_timeout)


def _named(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


async def _ended(hosted: HostedSession) -> None:
    event = anyio.Event()
    hosted.on_end = event.set
    if not hosted.is_over:
        with anyio.fail_after(30):
            await event.wait()


async def _until(condition: Any) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_a_session_is_found_by_its_id_until_it_ends() -> None:
    host = _host()
    async with host.running():
        hosted = await host.open()
        assert host.sessions.find(hosted.session_id) is hosted
        assert len(hosted.session_id) == 36
        assert await host.close(hosted.session_id)
        with pytest.raises(SessionNotFoundError, match=hosted.session_id):
            host.sessions.find(hosted.session_id)


async def test_one_connection_at_a_time_holds_a_session() -> None:
    host = _host()
    async with host.running():
        hosted = await host.open(held=False)
        assert host.hold(hosted.session_id) is hosted
        with pytest.raises(SessionStateError, match="already has an attached WebSocket"):
            host.hold(hosted.session_id)
        host.release(hosted.session_id)
        host.hold(hosted.session_id)


async def test_calls_of_several_transports_wait_for_each_other_in_order() -> None:
    host = _host()
    async with host.running(), host.session() as hosted:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hosted.step, _named("0", wait=True))
            await _until(lambda: Watched.entered == ["0"])
            for name in "12345":
                tasks.start_soon(hosted.step, _named(name))
                await _until(lambda name=name: len(hosted._turns or ()) == int(name))
            tasks.start_soon(hosted.state)
            tasks.start_soon(hosted.call_tool, "poke", {})
            Watched.gate.set()
        assert Watched.entered == list("012345")


async def test_a_waiting_call_that_is_cancelled_holds_up_nobody() -> None:
    host = _host()
    async with host.running(), host.session() as hosted:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hosted.step, _named("first", wait=True))
            await _until(lambda: Watched.entered == ["first"])
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(hosted.step, _named("gone"))
                await _until(lambda: hosted.is_waited_for)
                tasks.start_soon(hosted.step, _named("second"))
                await _until(lambda: len(hosted._turns or ()) == 2)
                leaving.cancel_scope.cancel()
            Watched.gate.set()
        assert Watched.entered == ["first", "second"]


async def test_a_call_whose_turn_does_not_come_in_time_is_not_begun_and_harms_nothing() -> None:
    host = _host()
    async with host.running(), host.session() as hosted, anyio.create_task_group() as tasks:
        tasks.start_soon(hosted.step, _named("first", wait=True))
        await _until(lambda: Watched.entered == ["first"])
        with pytest.raises(DeadlineExceededError, match="was not begun"):
            await hosted.step(_named("late"), deadline_s=0.01)
        Watched.gate.set()
        await hosted.step(_named("next"))
        assert Watched.entered == ["first", "next"]


async def test_those_who_wait_for_a_session_that_ends_are_told() -> None:
    host = _host()
    told: list[str] = []

    async def call(hosted: HostedSession) -> None:
        with pytest.raises((SessionStateError, SessionLostError)) as caught:
            await hosted.state()
        told.append(str(caught.value))

    async with host.running():
        hosted = await host.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hosted.step, _named("first", wait=True))
            await _until(lambda: Watched.entered == ["first"])
            for _ in range(3):
                tasks.start_soon(call, hosted)
            await _until(lambda: len(hosted._turns or ()) == 3)
            assert not await host.close(hosted.session_id)
            Watched.gate.set()
        assert len(told) == 3


async def test_a_close_while_the_environment_is_built_closes_what_is_built() -> None:
    building, go_on = threading.Event(), threading.Event()

    def slow() -> Watched:
        building.set()
        go_on.wait(30)
        return Watched()

    host = _host(most=1, factory=slow)
    failed: list[Exception] = []

    async def open_one() -> None:
        with pytest.raises(SessionLostError, match="while its environment was built") as caught:
            await host.open(held=False)
        failed.append(caught.value)

    async with host.running():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_one)
            await _until(building.is_set)
            (hosted,) = host.sessions.all()
            with pytest.raises(SessionStateError, match="still initializing"):
                host.hold(hosted.session_id)
            assert not await host.close(hosted.session_id)
            go_on.set()
        assert failed
        assert len(host.sessions) == host.status.active_sessions == 0


async def test_a_failed_factory_leaves_a_free_slot_and_no_session() -> None:
    def broken() -> Watched:
        raise OSError("no display")

    host = _host(most=1, factory=broken)
    async with host.running():
        for _ in range(3):
            with pytest.raises(EnvironmentFactoryError, match="broken"):
                await host.open()
        assert len(host.sessions) == host.status.active_sessions == 0


# ---------------------------------------------------------------------- capacity


async def test_without_a_wait_the_refusal_comes_at_once() -> None:
    host = _host(most=1)
    async with host.running(), host.session():
        with pytest.raises(SessionCapacityError, match="Server at capacity: 1/1 sessions active"):
            await host.open()


async def test_clients_wait_for_a_slot_in_order() -> None:
    host, served = _host(most=1), list[int]()

    async def client(number: int) -> None:
        async with host.session(wait_s=30):
            served.append(number)
            await anyio.lowlevel.checkpoint()

    async with host.running():
        first = await host.open()
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(client, number)
                await _until(lambda number=number: host.metrics.waiting == number + 1)
            with pytest.raises(SessionCapacityError):
                await host.open()  # one that does not wait overtakes nobody
            await host.close(first.session_id)
        assert served == list(range(20))
        assert host.status.active_sessions == host.metrics.waiting == 0


async def test_a_wait_ends_with_its_own_deadline() -> None:
    host = _host(most=1)
    async with host.running(), host.session():
        with pytest.raises(SessionCapacityError, match=r"none ended in the 0\.02 s"):
            await host.open(wait_s=0.02)
        assert host.metrics.waiting == 0


async def test_a_waiter_that_leaves_with_its_slot_passes_it_on() -> None:
    host = _host(most=1)
    opened: list[HostedSession] = []

    async def client() -> None:
        opened.append(await host.open(wait_s=30))

    async with host.running():
        first = await host.open()
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(client)
                await _until(lambda: host.metrics.waiting == 1)
                tasks.start_soon(client)
                await _until(lambda: host.metrics.waiting == 2)
                leaving.cancel_scope.cancel()
                await host.close(first.session_id)
            await _until(lambda: len(opened) == 1)
        assert host.status.active_sessions == 1


async def test_no_more_than_so_many_wait() -> None:
    host = _host(most=1, max_waiting=1)
    async with host.running(), anyio.create_task_group() as tasks:
        first = await host.open()
        tasks.start_soon(_open_and_close, host)
        await _until(lambda: host.metrics.waiting == 1)
        with pytest.raises(SessionCapacityError, match=r"1 clients wait already \(max_waiting\)"):
            await host.open(wait_s=30)
        await host.close(first.session_id)


async def _open_and_close(host: SessionHost) -> None:
    async with host.session(wait_s=30):
        pass


async def test_temporary_environments_are_bounded_and_take_no_slot() -> None:
    host = _host(most=2)
    most = 0

    async def use() -> None:
        nonlocal most
        async with host.temporary() as hosted:
            most = max(most, Watched.live)
            await hosted.reset({})
            await anyio.lowlevel.checkpoint()

    async with host.running(), anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(use)
    assert most <= 2
    assert host.status.active_sessions == 0


# ---------------------------------------------------------------------- reaping


async def test_a_session_that_nobody_holds_ends_after_its_timeout() -> None:
    host = _host(most=1, detached_timeout_s=0.05)
    async with host.running():
        hosted = await host.open(held=False)
        await _ended(hosted)
        assert hosted.session.end is SessionEnd.DETACHED
        assert host.metrics.reaped == 1
        with pytest.raises(SessionLostError, match="no connection held it"):
            await hosted.state()
        await host.close((await host.open()).session_id)  # its slot is free


async def test_sessions_of_clients_that_died_do_not_fill_the_server() -> None:
    host = _host(most=4, detached_timeout_s=0.05)
    async with host.running():
        for _ in range(4):
            await host.open(held=False, transport="mcp")
        fresh = await host.open(wait_s=30)
        assert not fresh.is_over


async def test_the_public_session_timeout_never_ends_a_session_on_a_live_socket() -> None:
    host = _host(most=2, session_timeout=0.05)
    async with host.running():
        held, detached = await host.open(), await host.open(held=False)
        await _ended(detached)
        assert not held.is_over
        await held.step(_named("still there"))
        assert host.status.active_sessions == 1


async def test_a_session_is_not_reaped_while_its_call_runs() -> None:
    host = _host(most=2, detached_timeout_s=0.05)
    async with host.running():
        busy = await host.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(busy.step, _named("long", wait=True))
            await _until(lambda: Watched.entered == ["long"])
            host.release(busy.session_id)  # only now: on a slow machine it might have rested too long before its call
            idle = await host.open(held=False)
            await _ended(idle)
            again = await host.open(held=False)
            await _ended(again)
            assert not busy.is_over
            Watched.gate.set()
        await _ended(busy)


async def test_a_silent_session_on_a_socket_ends_after_the_idle_timeout() -> None:
    host = _host(idle_timeout_s=0.05)
    async with host.running():
        hosted = await host.open()
        await _ended(hosted)
        assert hosted.session.end is SessionEnd.IDLE


async def test_a_released_session_lives_as_long_as_its_connection_wished() -> None:
    host = _host()
    async with host.running():
        hosted = await host.open()
        host.release(hosted.session_id, timeout_s=0.05)
        await _ended(hosted)
        assert hosted.session.end is SessionEnd.DETACHED


async def test_sessions_are_reaped_where_no_lifespan_runs() -> None:
    host = _host(detached_timeout_s=0.05)
    hosted = await host.open(held=False)
    await _ended(hosted)
    assert host.status.active_sessions == 0


async def test_a_close_wished_for_while_a_connection_holds_comes_with_its_going() -> None:
    host = _host()
    async with host.running():
        hosted = await host.open()
        assert not await host.close(hosted.session_id, when_released=True)
        await hosted.step(_named("still there"))
        host.release(hosted.session_id)
        await _ended(hosted)
        assert hosted.session.end is SessionEnd.CLOSED


# ---------------------------------------------------------------------- the end of the server


async def test_a_draining_host_refuses_new_sessions_and_lets_episodes_end() -> None:
    host = _host(most=4)
    async with host.running():
        running, resting = await host.open(), await host.open()
        await running.reset({})
        host.drain()
        assert host.draining
        with pytest.raises(SessionCapacityError, match="shutting down") as caught:
            await host.open(wait_s=30)
        assert caught.value.retryable
        await _ended(resting)
        assert resting.session.end is SessionEnd.DRAINED
        assert not running.is_over
        await running.step(_named("on it goes"))
        await running.step(_named("the last", done=True))
        await running.state()  # there is time to read how it ended
        with anyio.fail_after(30):
            await host.idle()
        assert running.session.end is SessionEnd.DRAINED


async def test_a_draining_host_begins_no_new_episode() -> None:
    host = _host()
    async with host.running():
        hosted = await host.open()
        await hosted.reset({})
        host.drain()
        with pytest.raises(SessionLostError, match="shutting down"):
            await hosted.reset({})


async def test_those_who_wait_for_a_slot_are_refused_when_the_drain_begins() -> None:
    host = _host(most=1)
    refused: list[Exception] = []

    async def client() -> None:
        with pytest.raises(SessionCapacityError, match="shutting down") as caught:
            await host.open(wait_s=30)
        refused.append(caught.value)

    async with host.running(), host.session() as hosted:
        await hosted.reset({})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client)
            await _until(lambda: host.metrics.waiting == 1)
            host.drain()
    assert len(refused) == 1


async def test_the_end_of_the_application_closes_every_environment() -> None:
    host, told = _host(), list[str]()

    async def call(hosted: HostedSession) -> None:
        with pytest.raises(SessionLostError) as caught:
            await hosted.step(_named("for ever", wait=True))
        told.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        async with host.running():
            await host.open(held=False)
            busy = await host.open()
            tasks.start_soon(call, busy)
            await _until(lambda: Watched.entered == ["for ever"])
        assert len(host.sessions) == host.status.active_sessions == 0
    assert busy.session.state is SessionState.CLOSED
    assert ["the server has shut down" in text for text in told] == [True]
