"""Replicas come when callers do, are replaced when they die, and go when nobody needs them: with real processes."""

from __future__ import annotations

import signal
from typing import Any

import anyio
import pytest

from openenv_trl.errors import (
    ConfigurationError,
    DeadlineExceededError,
    ProviderError,
    ServerStartError,
    SessionCapacityError,
    SessionStateError,
)
from openenv_trl.providers import Lease, ProcessProvider, Replica
from openenv_trl.providers.replica_pool import PoolSettings, ReplicaPool, ReplicaPools, StartLimit

pytestmark = pytest.mark.anyio

QUICK: dict[str, Any] = {
    "sessions_per_replica": 2,
    "scale_up_wait_s": 0.0,
    "start_back_off_s": 0.05,
    "longest_start_back_off_s": 0.2,
}


async def test_a_burst_starts_replicas_and_idleness_stops_them_all(plain, connect, until, wait_gone):
    provider = plain()
    settings = PoolSettings(min_replicas=0, max_replicas=3, idle_s=0.3, **QUICK)
    async with ReplicaPool(provider, connect, settings) as pool:
        assert pool.replicas == []
        leases: list[Lease[Any]] = []
        all_there = anyio.Event()

        async def use() -> None:
            leases.append(await pool.acquire(60))
            if len(leases) == 6:
                all_there.set()
            await all_there.wait()

        async with anyio.create_task_group() as callers:
            for _ in range(6):
                callers.start_soon(use)
        assert len({lease.base_url for lease in leases}) == 3
        pids = list(provider.server_pids)
        for lease in leases:
            await pool.release(lease)
        await until(lambda: pool.metrics().replicas_ready + pool.metrics().replicas_draining == 0)
        await wait_gone(*pids)
        assert provider.replicas == []
        async with pool.session(60) as session:  # and from nothing again
            assert session.replica.base_url in provider.base_urls
        assert pool.metrics().starts == 4


async def test_replicas_that_are_to_go_are_left_until_their_last_session_is_given_back(plain, connect, until):
    settings = PoolSettings(min_replicas=0, max_replicas=2, idle_s=0.1, **QUICK)
    async with ReplicaPool(plain(), connect, settings) as pool:
        leases = [await pool.acquire(60) for _ in range(4)]
        kept = leases[0]
        for lease in leases[1:]:
            await pool.release(lease)
        await until(lambda: pool.metrics().replicas_ready == 1 and not pool.metrics().replicas_draining)
        assert [replica.base_url for replica in pool.replicas] == [kept.base_url]
        await pool.release(kept)
        await until(lambda: pool.metrics().replicas_ready + pool.metrics().replicas_draining == 0)


async def test_a_warm_reserve_is_kept_beyond_the_load(plain, connect, until):
    settings = PoolSettings(min_replicas=0, max_replicas=3, warm_sessions=2, **QUICK)
    async with ReplicaPool(plain(), connect, settings) as pool:
        await until(lambda: pool.metrics().replicas_ready == 1)
        await pool.acquire(60)
        await until(lambda: pool.metrics().replicas_ready == 2)
        await pool.acquire(60)
        await pool.acquire(60)
        await until(lambda: pool.metrics().replicas_ready == 3)


async def test_a_killed_replica_leaves_the_pool_is_explained_and_replaced(plain, connect, until, send):
    provider = plain("--say", "I play cards")
    async with ReplicaPool(provider, connect, PoolSettings(max_replicas=1, **QUICK)) as pool:
        lease = await pool.acquire(60)
        assert await pool.explain(lease.base_url) == ""
        send(provider, lease.base_url)
        why = await pool.explain(lease.base_url)
        assert "has died: ended with exit code -9" in why
        assert "I play cards" in why
        await pool.release(lease, healthy=False)
        other = await pool.acquire(60)
        assert other.base_url != lease.base_url
        assert provider.base_urls == [other.base_url]
        assert pool.metrics().deaths == 1


async def test_a_provider_that_starts_its_servers_again_itself_leaves_none_behind(plain, connect, send, wait_gone):
    lines: list[str] = []
    provider = plain(max_restarts=5, on_log=lambda name, line: lines.append(line))
    async with ReplicaPool(provider, connect, PoolSettings(max_replicas=1, **QUICK)) as pool:
        lease = await pool.acquire(60)
        send(provider, lease.base_url)
        assert await pool.explain(lease.base_url)
        await pool.release(lease, healthy=False)
        await pool.release(await pool.acquire(60))
    pids = [int(line.split()[1]) for line in lines if line.startswith("pid ")]
    assert len(pids) >= 2
    await wait_gone(*pids)


async def test_a_replica_that_hangs_is_found_by_its_health_check_and_replaced(plain, connect, send):
    provider = plain()
    settings = PoolSettings(
        max_replicas=1, health_interval_s=0.1, health_timeout_s=0.2, health_failures=2, connect_timeout_s=0.5, **QUICK
    )
    async with ReplicaPool(provider, connect, settings) as pool:
        lease = await pool.acquire(60)
        send(provider, lease.base_url, signal.SIGSTOP)
        while "2 health checks in a row failed (no answer within 0.2 s)" not in await pool.explain(lease.base_url):
            pass
        await pool.release(lease, healthy=False)
        assert (await pool.acquire(60)).base_url != lease.base_url


async def test_callers_are_told_why_no_replica_starts(plain, connect):
    settings = PoolSettings(min_replicas=0, max_replicas=2, start_failures=2, **QUICK)
    async with ReplicaPool(plain("--crash"), connect, settings) as pool:
        errors: list[ServerStartError] = []

        async def ask() -> None:
            with pytest.raises(ServerStartError, match=r"ended with exit code 1(.|\n)*division by zero") as caught:
                await pool.acquire()
            errors.append(caught.value)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as callers:
                for _ in range(3):
                    callers.start_soon(ask)
            await ask()
        assert len(errors) == 4
        assert pool.metrics().waiting == 0


class Broken(ProcessProvider):
    """A provider whose settings cannot work, or whose engine is out of reach for a while."""

    def __init__(self, *errors: Exception, command: list[str]) -> None:
        super().__init__(command, stop_grace_s=0.1)
        self.errors = list(errors)

    async def add_replica(self) -> Replica:
        if self.errors:
            raise self.errors.pop(0)
        return await super().add_replica()


async def test_a_mistake_in_the_settings_is_told_at_once(plain_server, connect):
    provider = Broken(ConfigurationError("no such image; build it"), command=plain_server(fd=True))
    settings = PoolSettings(min_replicas=0, start_back_off_s=600, longest_start_back_off_s=600)
    async with ReplicaPool(provider, connect, settings) as pool:
        for _ in range(2):  # also who comes later, until it is tried again
            with anyio.fail_after(60), pytest.raises(ConfigurationError, match="build it"):
                await pool.acquire()


async def test_callers_wait_while_starts_fail_for_a_moment(plain_server, connect):
    errors = [ProviderError("the engine does not answer"), RuntimeError("a provider of anyone's"), ProviderError("")]
    provider = Broken(*errors, command=plain_server(fd=True))
    settings = PoolSettings(max_replicas=1, start_failures=9, **QUICK)
    async with ReplicaPool(provider, connect, settings) as pool:
        await pool.acquire(60)
        assert pool.metrics().start_failures == 3


async def test_callers_whose_deadline_comes_first_are_told_that_replicas_start(plain, connect):
    settings = PoolSettings(min_replicas=0, max_replicas=1)
    async with ReplicaPool(plain("--never-ready"), connect, settings) as pool:
        with pytest.raises(DeadlineExceededError, match=r"No environment server was ready within .*1 replica starts"):
            await pool.acquire(0.2)


async def test_servers_by_their_address_are_used_first_and_neither_started_nor_stopped(plain, connect, until, answers):
    async with plain() as elsewhere:
        (remote,) = elsewhere.replicas
        member = Replica(remote.base_url, "remote", headers={"Authorization": "Bearer me"})
        settings = PoolSettings(min_replicas=0, max_replicas=1, idle_s=0.1, **QUICK)
        async with ReplicaPool([member, plain()], connect, settings) as pool:
            first = [await pool.acquire(60) for _ in range(2)]
            assert {lease.base_url for lease in first} == {remote.base_url}
            assert pool.headers_of(remote.base_url) == {"Authorization": "Bearer me"}
            assert first[0].session.replica is member
            assert pool.metrics().starts == 0
            more = await pool.acquire(60)
            assert more.base_url != remote.base_url
            for lease in (*first, more):
                await pool.release(lease)
            await until(lambda: pool.metrics().replicas_ready == 1 and not pool.metrics().replicas_draining)
            assert pool.max_sessions == 4
        assert answers(remote.base_url)


async def test_a_server_by_its_address_that_goes_away_is_replaced_by_replicas_until_it_is_back(
    plain, connect, until, send
):
    checks = {"health_interval_s": 0.1, "health_timeout_s": 0.2, "health_failures": 1, "connect_timeout_s": 0.2}
    async with plain() as elsewhere:
        url = elsewhere.base_urls[0]
        settings = PoolSettings(min_replicas=0, max_replicas=1, idle_s=0.1, **checks, **QUICK)
        async with ReplicaPool([url, plain()], connect, settings) as pool:
            send(elsewhere, url, signal.SIGSTOP)
            await until(lambda: pool.metrics().servers_away == 1)
            lease = await pool.acquire(60)
            assert lease.base_url != url
            send(elsewhere, url, signal.SIGCONT)
            await until(lambda: pool.metrics().servers_away == 0)
            await pool.release(lease)
            await until(lambda: [replica.base_url for replica in pool.replicas] == [url])


async def test_replicas_that_run_already_are_taken_over(plain, connect):
    provider = plain(replicas=2)
    await provider.start()
    async with ReplicaPool(provider, connect, PoolSettings(max_replicas=2, **QUICK)) as pool:
        assert {replica.base_url for replica in pool.replicas} == set()  # at the first turn of the loop
        leases = [await pool.acquire(60) for _ in range(4)]
        assert {lease.base_url for lease in leases} == set(provider.base_urls)
        assert pool.metrics().starts == 0
    assert provider.replicas == []


async def test_closing_ends_starts_replicas_and_those_who_wait(plain, connect, until, wait_gone):
    provider, stuck = plain(), plain("--never-ready")
    told: list[SessionStateError] = []

    async def ask(pool: ReplicaPool[Any]) -> None:
        try:
            while True:
                await pool.acquire()
        except SessionStateError as error:
            told.append(error)

    async with anyio.create_task_group() as callers:
        settings = PoolSettings(min_replicas=2, max_replicas=2, **QUICK)
        async with ReplicaPool([provider, stuck], connect, settings) as pool:
            await until(lambda: pool.metrics().replicas_ready == 1)
            await until(lambda: None not in stuck.server_pids and len(stuck.server_pids) == 1)
            pids = [*provider.server_pids, *stuck.server_pids]
            for _ in range(3):
                callers.start_soon(ask, pool)
            await until(lambda: pool.metrics().waiting == 3)
            callers.start_soon(pool.aclose)  # from another task than the one that opened it
            await wait_gone(*pids, within_s=60)
    assert [str(error) for error in told] == ["the session pool is closed; make a new one for further sessions"] * 3
    assert provider.replicas == stuck.replicas == []


async def test_a_pool_that_is_left_at_once_stops_what_it_has_begun(plain, connect):
    provider = plain()
    with anyio.fail_after(60):
        async with ReplicaPool(provider, connect, PoolSettings(min_replicas=2, **QUICK)):
            pass
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with ReplicaPool(provider, connect, PoolSettings(min_replicas=2, **QUICK)):
                pass
    assert provider.replicas == []


async def test_a_cancelled_owner_leaves_no_replica(plain, connect, until, wait_gone):
    provider = plain()
    pids: list[int | None] = []

    async def own() -> None:
        async with ReplicaPool(provider, connect, PoolSettings(min_replicas=2, **QUICK)) as pool:
            await pool.acquire(60)
            await until(lambda: pool.metrics().replicas_ready == 2)
            pids.extend(provider.server_pids)
            owner.cancel_scope.cancel()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as owner:
        owner.start_soon(own)
    await wait_gone(*pids)
    assert len(pids) == 2
    assert provider.replicas == []


async def test_what_the_block_raises_comes_out_as_it_is(plain, connect):
    async def fail() -> None:
        async with ReplicaPool(plain(), connect, PoolSettings(**QUICK)) as pool:
            await pool.acquire(60)
            1 / 0  # noqa: B018

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_a_server_that_allows_fewer_sessions_is_reckoned_with_what_it_allows(plain, connect, until):
    open_now: dict[str, int] = {}

    async def connect_one(replica: Replica) -> Any:
        if open_now.get(replica.base_url):
            raise SessionCapacityError(1, 1)
        open_now[replica.base_url] = 1
        return await connect(replica)

    settings = PoolSettings(min_replicas=0, max_replicas=3, **{**QUICK, "sessions_per_replica": 64})
    async with ReplicaPool(plain(), connect_one, settings) as pool, anyio.create_task_group() as callers:
        for _ in range(3):
            callers.start_soon(pool.acquire, 60)
        await until(lambda: pool.metrics().in_use == 3)
        assert pool.metrics().replicas_busy == 3


async def test_pools_share_how_many_replicas_there_are_and_one_gives_up_what_another_needs(plain, connect, until):
    pools = ReplicaPools(StartLimit(max_replicas=2))
    settings = PoolSettings(min_replicas=0, max_replicas=2, idle_s=3600, **QUICK)
    pools.add("chess", plain(), connect, settings)
    pools.add("cards", plain(), connect, settings)
    with pytest.raises(ConfigurationError, match="a pool named 'chess' already"):
        pools.add("chess", plain(), connect)
    async with pools:
        leases = [await pools["chess"].acquire(60) for _ in range(4)]
        assert pools.shared.existing == 2
        for lease in leases[1:]:
            await pools["chess"].release(lease)
        other = await pools["cards"].acquire(60)  # long before chess has been idle for its hour
        assert pools.shared.existing == 2
        assert pools["chess"].metrics().replicas_ready == 1
        assert pools.numbers()["pool/cards/in_use"] == 1.0
        await pools["chess"].release(leases[0])
        await pools["cards"].release(other)
    assert pools.shared.existing == pools.shared.starting == 0


async def test_a_pool_without_any_replica_gets_one_though_another_needs_all(plain, connect, until):
    pools = ReplicaPools(StartLimit(max_replicas=2))
    settings = PoolSettings(min_replicas=0, max_replicas=2, idle_s=3600, **QUICK)
    greedy, humble = (pools.add(name, plain(), connect, settings) for name in ("greedy", "humble"))
    async with pools, anyio.create_task_group() as callers:

        async def play_on() -> None:
            while True:
                async with greedy.session(60):
                    await anyio.sleep(0.01)

        for _ in range(8):
            callers.start_soon(play_on)
        await until(lambda: greedy.metrics().replicas_ready == 2)
        await humble.acquire(60)
        assert greedy.metrics().replicas_ready == 1
        callers.cancel_scope.cancel()


async def test_metrics_tell_waits_starts_and_use(plain, connect):
    async with ReplicaPool(plain(), connect, PoolSettings(max_replicas=1, **QUICK)) as pool:
        async with pool.session(60):
            numbers = pool.metrics().numbers()
        assert numbers["pool/in_use"] == numbers["pool/replicas_busy"] == numbers["pool/starts"] == 1.0
        assert 0 < numbers["pool/start_s_p50"] <= numbers["pool/acquire_s_max"]
        assert numbers["pool/acquire_s_p50"] == numbers["pool/acquire_s_p95"]
        assert 0 <= numbers["pool/utilisation"] <= 1
        assert pool.metrics().replicas_idle == 1


async def test_a_pool_that_is_not_open_says_how_to_open_it(plain, connect):
    pool = ReplicaPool(plain(), connect)
    with pytest.raises(SessionStateError, match="use it as `async with pool:`"):
        await pool.acquire()
    async with pool:
        pass
    with pytest.raises(SessionStateError, match="was opened before"):
        await pool.__aenter__()


@pytest.mark.parametrize(
    ("members", "settings", "message"),
    [
        ([], {}, "no members"),
        (["http://h:1", "ws://h:1/ws"], {}, "twice"),
        ({"type": "dokcer", "image": "x"}, {}, "is 'docker' meant"),
        (["http://h:1"], {"min_replicas": 5}, "min_replicas=5 is more than max_replicas=4"),
        ({"type": "process", "environment": "x:app"}, {"min_replicas": 0, "max_replicas": 0}, "max_replicas=0"),
    ],
)
def test_bad_settings_are_refused_at_once(members, settings, message, connect):
    with pytest.raises(ValueError, match=message):
        ReplicaPool(members, connect, PoolSettings(**settings))


async def test_a_remote_provider_stands_for_the_servers_that_it_names(plain, connect):
    async with plain(replicas=2) as elsewhere:
        spec = {"type": "remote", "urls": elsewhere.base_urls, "headers": {"X-Key": "k"}}
        async with ReplicaPool(spec, connect, PoolSettings(sessions_per_replica=1)) as pool:
            leases = [await pool.acquire(60) for _ in range(2)]
            assert {lease.base_url for lease in leases} == set(elsewhere.base_urls)
            assert pool.headers_of(leases[0].base_url) == {"X-Key": "k"}
            assert pool.max_sessions == 2
