"""Callers of the pool wait and are served; nothing stays open behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import pytest

from openenv_trl.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DeadlineExceededError,
    EnvironmentFactoryError,
    SessionCapacityError,
    SessionStateError,
)
from openenv_trl.providers import Lease, SessionPool

pytestmark = pytest.mark.anyio


class FakeSession:
    def __init__(self, servers: FakeServers, url: str) -> None:
        self.servers = servers
        self.url = url
        self.is_open = True

    async def close(self) -> None:
        await self.servers.closing.wait()
        self.servers.open[self.url].remove(self)
        self.servers.closed += 1


class FakeServers:
    """Servers that allow so many sessions, and may be down, or slow to open or close."""

    def __init__(self, **capacity: int) -> None:
        self.capacity = capacity
        self.open: dict[str, list[FakeSession]] = {url: [] for url in capacity}
        self.down: set[str] = set()
        self.calls: list[str] = []
        self.closed = 0
        self.connecting = anyio.Event()
        self.connecting.set()
        self.closing = anyio.Event()
        self.closing.set()

    async def connect(self, url: str) -> FakeSession:
        self.calls.append(url)
        await self.connecting.wait()
        if url in self.down:
            raise ConnectionFailedError(f"{url} is down", phase="connect")
        if len(self.open[url]) >= self.capacity[url]:
            raise SessionCapacityError(len(self.open[url]), self.capacity[url])
        self.open[url].append(FakeSession(self, url))
        return self.open[url][-1]

    @property
    def open_count(self) -> int:
        return sum(map(len, self.open.values()))


@pytest.fixture
async def servers() -> FakeServers:
    return FakeServers(a=2)


@pytest.fixture
def make_pool(servers: FakeServers) -> Callable[..., SessionPool[FakeSession]]:
    def make(sessions_per_server: int = 2, **settings: float) -> SessionPool[FakeSession]:
        return SessionPool(list(servers.capacity), servers.connect, sessions_per_server=sessions_per_server, **settings)

    return make


async def test_a_released_session_is_lent_again(make_pool, servers):
    async with make_pool() as pool:
        first = await pool.acquire()
        await pool.release(first)
        second = await pool.acquire()
        assert second.session is first.session
        await pool.release(second)
    assert servers.open_count == 0
    assert servers.calls == ["a"]


async def test_an_unhealthy_session_is_closed_and_replaced(make_pool, servers):
    async with make_pool() as pool:
        first = await pool.acquire()
        await pool.release(first, healthy=False)
        assert servers.closed == 1
        second = await pool.acquire()
        assert second.session is not first.session
    assert pool.metrics().opened == 2


async def test_a_session_that_others_wait_for_is_closed_and_the_idle_ones_are_kept(make_pool, servers):
    async with make_pool() as pool:
        left, idle = await pool.acquire(), await pool.acquire()
        await pool.release(idle)
        left.session.others_wait = True
        await pool.release(left)
        assert (servers.closed, servers.open["a"]) == (1, [idle.session])
        again, fresh = await pool.acquire(), await pool.acquire()
        assert again.session is idle.session
        assert fresh.session is not left.session
    assert pool.metrics().opened == 3


async def test_a_block_that_raises_gives_its_session_back_as_unhealthy(make_pool, servers):
    async with make_pool() as pool:
        with pytest.raises(ZeroDivisionError):
            async with pool.session():
                1 / 0  # noqa: B018
        assert servers.closed == 1
        async with pool.session(deadline_s=60):
            pass
        assert pool.metrics().idle == 1


async def test_waiting_callers_are_served_in_order(make_pool):
    served: list[int] = []

    async def wait(number: int) -> None:
        lease = await pool.acquire()
        served.append(number)
        await pool.release(lease)

    async with make_pool(sessions_per_server=1) as pool, anyio.create_task_group() as tasks:
        held = await pool.acquire()
        for number in range(5):
            tasks.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
        await pool.release(held)
    assert served == [0, 1, 2, 3, 4]


async def test_many_callers_share_what_the_servers_allow(servers):
    servers.capacity.update(a=3, b=5)
    servers.open["b"] = []
    most = 0
    pool = SessionPool(["a", "b"], servers.connect, sessions_per_server=64)

    async def use() -> None:
        nonlocal most
        async with pool.session(deadline_s=60):
            most = max(most, pool.metrics().in_use)
            await anyio.lowlevel.checkpoint()

    async with pool, anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(use)
    assert most == 8
    assert servers.open_count == 0


async def test_a_refusal_for_capacity_waits_for_a_release(make_pool):
    async with make_pool(sessions_per_server=8) as pool, anyio.create_task_group() as tasks:
        held = [await pool.acquire() for _ in range(2)]
        got: list[Lease[FakeSession]] = []

        async def third() -> None:
            got.append(await pool.acquire(timeout_s=60))

        tasks.start_soon(third)
        await anyio.wait_all_tasks_blocked()
        assert pool.metrics().refused >= 1
        assert not got
        await pool.release(held[0])
        await anyio.wait_all_tasks_blocked()
        assert got[0].session is held[0].session


async def test_a_server_full_with_other_users_is_asked_again_until_there_is_room(make_pool, servers):
    others = [await servers.connect("a") for _ in range(2)]
    async with make_pool() as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.acquire, 60)
        while pool.metrics().refused < 2:
            await anyio.wait_all_tasks_blocked()
            await anyio.lowlevel.checkpoint()
        await others[0].close()
    assert pool.metrics().opened == 1


async def test_the_deadline_tells_who_holds_the_sessions_and_what_to_raise(make_pool):
    async with make_pool() as pool:
        for _ in range(2):
            await pool.acquire()
        with pytest.raises(DeadlineExceededError, match=r"2 sessions are in use.*Raise the deadline"):
            await pool.acquire(timeout_s=0.05)
        assert pool.metrics().waiting == 0


async def test_a_capacity_refusal_never_surfaces_before_the_deadline(make_pool, servers):
    servers.capacity["a"] = 0
    async with make_pool() as pool:
        with pytest.raises(DeadlineExceededError, match="refuses more than 0"):
            await pool.acquire(timeout_s=2)
    assert pool.metrics().refused >= 2


async def test_callers_go_to_another_server_when_one_is_down(servers):
    servers.capacity["b"] = 2
    servers.open["b"] = []
    servers.down.add("a")
    async with SessionPool(["a", "b"], servers.connect, sessions_per_server=2) as pool:
        assert (await pool.acquire()).base_url == "b"
        assert pool.metrics().failed == 1


async def test_a_server_that_comes_back_serves_those_who_waited(make_pool, servers):
    servers.down.add("a")
    async with make_pool() as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.acquire, 60)
        while pool.metrics().failed < 2:
            await anyio.wait_all_tasks_blocked()
            await anyio.lowlevel.checkpoint()
        servers.down.clear()
    assert pool.metrics().opened == 1


async def test_no_server_at_all_is_told_as_such(make_pool, servers):
    servers.down.add("a")
    async with make_pool(server_patience_s=0.2) as pool:
        with pytest.raises(
            ConnectionFailedError, match=r"a: ConnectionFailedError: a is down.*Check that the servers run"
        ):
            await pool.acquire()
        with pytest.raises(ConnectionFailedError):
            await pool.acquire(timeout_s=0.05)


async def test_a_connect_that_hangs_is_given_up_and_counted_as_a_failure(make_pool, servers):
    servers.connecting = anyio.Event()
    async with make_pool(connect_timeout_s=0.05) as pool:
        with pytest.raises(ConnectionFailedError, match=r"no session within 0\.05 s"):
            await pool.acquire(timeout_s=2)
    assert pool.metrics().connecting == 0


async def test_servers_that_open_no_session_in_time_are_not_called_full(make_pool, servers):
    servers.connecting = anyio.Event()
    errors: list[ConnectionFailedError] = []

    async def wait() -> None:
        with pytest.raises(ConnectionFailedError) as caught:
            await pool.acquire(timeout_s=0.05)
        errors.append(caught.value)

    async with make_pool(sessions_per_server=2) as pool, anyio.create_task_group() as tasks:
        for _ in range(5):  # more than may try at once
            tasks.start_soon(wait)
    assert len(errors) == 5
    for error in errors:
        assert "did not open a session within" in str(error)
        assert "does not answer: no session within" in str(error) or "unanswered" in str(error)
        assert "Raise" not in str(error)


async def test_a_session_whose_connection_ended_while_idle_is_not_lent(make_pool, servers):
    async with make_pool() as pool:
        first, second = await pool.acquire(), await pool.acquire()
        await pool.release(first)
        await pool.release(second)
        for session in servers.open["a"]:
            session.is_open = False
        third = await pool.acquire(timeout_s=60)
        assert third.session.is_open
        assert servers.closed == 2
        await pool.release(third)
        assert (await pool.acquire()).session is third.session


async def test_an_environment_that_cannot_be_made_is_the_callers_to_judge():
    async def connect(url: str) -> FakeSession:
        raise EnvironmentFactoryError("make_env")

    async with SessionPool(["a"], connect, sessions_per_server=1) as pool:
        for _ in range(2):  # the place is free again afterwards
            with pytest.raises(EnvironmentFactoryError):
                await pool.acquire(timeout_s=60)


async def test_a_cancelled_connect_leaves_nothing_open(make_pool, servers):
    servers.connecting = anyio.Event()
    async with make_pool() as pool:
        with anyio.move_on_after(0.02):
            await pool.acquire()
        assert pool.metrics().connecting == 0
        assert pool.metrics().waiting == 0
    assert servers.open_count == 0


async def test_a_connect_that_completes_in_spite_of_its_cancellation_is_not_lost(servers):
    async def stubborn(url: str) -> FakeSession:
        with anyio.CancelScope(shield=True):
            return await servers.connect(url)

    servers.connecting = anyio.Event()
    leases: list[Lease[FakeSession]] = []

    async def ask() -> None:
        leases.append(await pool.acquire())

    async with SessionPool(["a"], stubborn, sessions_per_server=2) as pool:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            servers.connecting.set()
        metrics = pool.metrics()
        assert metrics.connecting == 0
        assert metrics.in_use == len(leases)
        assert metrics.in_use + metrics.idle == servers.open_count == 1
    assert servers.open_count == 0


async def test_a_caller_cancelled_after_its_grant_gives_the_session_to_the_next(make_pool):
    """asyncio can cancel a task between the moment it is granted a session and the moment it runs."""
    async with make_pool(sessions_per_server=1) as pool:
        held = await pool.acquire()
        first = asyncio.ensure_future(pool.acquire())
        await anyio.wait_all_tasks_blocked()
        second = asyncio.ensure_future(pool.acquire())
        await anyio.wait_all_tasks_blocked()
        await pool.release(held)
        first.cancel()
        assert (await second).session is held.session
        assert first.cancelled()


async def test_a_caller_granted_a_session_before_it_began_to_connect_does_not_hold_a_place(make_pool, servers):
    async with make_pool() as pool:
        held = await pool.acquire()
        servers.connecting = anyio.Event()

        async def ask_then_release() -> None:
            try:
                await pool.acquire()
            finally:
                await pool.release(held)

        connecting = asyncio.ensure_future(ask_then_release())
        await anyio.wait_all_tasks_blocked()
        waiting = asyncio.ensure_future(pool.acquire())
        await anyio.wait_all_tasks_blocked()
        # In one step the waiting caller is told to connect, and then granted a session that is free.
        connecting.cancel()
        assert (await waiting).session is held.session
        assert pool.metrics().connecting == 0


async def test_a_session_that_hangs_in_close_does_not_hold_its_releaser(make_pool, servers):
    servers.closing = anyio.Event()
    async with make_pool(close_timeout_s=0.05) as pool:
        lease = await pool.acquire()
        with anyio.fail_after(60):
            await pool.release(lease, healthy=False)
        assert pool.metrics().closed == 1


async def test_release_in_a_cancelled_task_still_closes_the_session(make_pool, servers):
    async with make_pool() as pool:
        with anyio.CancelScope() as scope:
            async with pool.session():
                scope.cancel()
                await anyio.sleep_forever()
        assert servers.closed == 1
        assert servers.open_count == 0


async def test_closing_the_pool_closes_all_and_tells_those_who_wait(make_pool, servers):
    errors: list[SessionStateError] = []

    async def wait() -> None:
        with pytest.raises(SessionStateError, match="pool is closed") as caught:
            await pool.acquire()
        errors.append(caught.value)

    pool = make_pool(sessions_per_server=2)
    async with anyio.create_task_group() as tasks:
        held = [await pool.acquire() for _ in range(2)]
        for _ in range(3):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await pool.aclose()
    assert len(errors) == 3
    assert servers.open_count == 0
    await pool.release(held[0])  # too late to matter
    await pool.release(held[1], healthy=False)
    await pool.aclose()
    with pytest.raises(SessionStateError, match="closed"):
        await pool.acquire()


async def test_closing_the_pool_ends_connects_that_are_under_way(make_pool, servers):
    servers.connecting = anyio.Event()
    pool = make_pool()

    async def wait() -> None:
        with pytest.raises(SessionStateError, match="pool is closed"):
            await pool.acquire()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await pool.aclose()
        assert pool.metrics().connecting == 0
    assert servers.open_count == 0


async def test_a_lease_cannot_be_released_twice(make_pool):
    async with make_pool() as pool:
        lease = await pool.acquire()
        await pool.release(lease)
        with pytest.raises(SessionStateError, match="released before"):
            await pool.release(lease)


def test_a_pool_does_not_move_to_another_event_loop():
    async def connect(url: str) -> FakeSession:
        return FakeSession(FakeServers(), url)

    async def use() -> None:
        await pool.release(await pool.acquire())

    pool = SessionPool(["a"], connect, sessions_per_server=1)
    anyio.run(use)
    with pytest.raises(SessionStateError, match="another event loop"):
        anyio.run(use)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h:1", "http://h:2"),
        ("http://h", "https://h"),
        ("http://h/a", "http://h/b"),
        ("http://h/ws?env=a", "http://h/ws?env=b"),
    ],
)
async def test_servers_that_only_look_alike_are_two(one, other):
    servers = FakeServers(**{one: 1, other: 1})
    async with SessionPool([one, other], servers.connect, sessions_per_server=1) as pool:
        assert {(await pool.acquire(60)).base_url for _ in range(2)} == {one, other}


@pytest.mark.parametrize(
    ("urls", "limit", "message"),
    [
        ([], 1, "base_urls is empty"),
        ("http://x", 1, "pass a list"),
        (["a", "a"], 1, "twice"),
        (["http://h:1", "http://h:1/"], 1, "twice: 'http://h:1' and 'http://h:1/'"),
        (["http://h:1", "ws://H:1/ws"], 1, "twice"),
        (["h", " http://h:80 "], 1, "twice"),
        (["https://h/env", "wss://h:443/env/ws/"], 1, "twice"),
        (["a"], 0, "at least 1"),
    ],
)
def test_bad_settings_are_refused_at_once(urls, limit, message):
    with pytest.raises(ConfigurationError, match=message):
        SessionPool(urls, FakeServers().connect, sessions_per_server=limit)


async def test_a_server_that_comes_back_is_tried_again_though_attempts_failed_one_after_the_other():
    # The caller that is next looked at the clock while the others' attempts still ran, and had nothing to wait for.
    may_fail = [anyio.Event(), anyio.Event()]
    calls = 0

    async def connect(url: str) -> FakeSession:
        nonlocal calls
        calls += 1
        if calls <= 2:
            await may_fail[calls - 1].wait()
            raise ConnectionFailedError("down", phase="connect")
        servers.open[url].append(FakeSession(servers, url))
        return servers.open[url][-1]

    servers = FakeServers(a=2)
    got: list[Lease[FakeSession]] = []
    async with SessionPool(["a"], connect, sessions_per_server=2, server_patience_s=60) as pool:

        async def take() -> None:
            got.append(await pool.acquire(60))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(take)
                group.start_soon(take)
                for fails in may_fail:
                    await anyio.wait_all_tasks_blocked()
                    fails.set()
    assert len(got) == 2


async def test_servers_come_and_go_while_callers_wait(make_pool, servers):
    got: list[Lease[FakeSession]] = []

    async def take() -> None:
        got.append(await pool.acquire(60))

    async with make_pool() as pool, anyio.create_task_group() as tasks:
        held = [await pool.acquire(), await pool.acquire()]
        await pool.release(held[0])
        await pool.retire_server("a")
        assert servers.closed == 1  # the idle one
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert got == []
        servers.open["b"], servers.capacity["b"] = [], 2
        await pool.add_server("b")
        await anyio.wait_all_tasks_blocked()
        assert [lease.base_url for lease in got] == ["b"]
        await pool.release(held[1])
        assert servers.open["a"] == []
        with pytest.raises(ConfigurationError, match="twice: 'b' and 'http://b/'"):
            await pool.add_server("http://b/")


async def test_an_attempt_that_hangs_on_a_server_that_dies_is_made_at_another(make_pool, servers):
    servers.connecting = anyio.Event()
    got: list[Lease[FakeSession]] = []

    async def take() -> None:
        got.append(await pool.acquire(60))

    async with make_pool() as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        await pool.drop_server("a")
        servers.open["b"], servers.capacity["b"] = [], 2
        servers.connecting.set()
        await pool.add_server("b")
    assert [lease.base_url for lease in got] == ["b"]
    assert pool.metrics().failed == 0
