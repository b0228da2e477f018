"""What holds of every provider with an engine, shown on one whose replicas are child processes."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers import ProcessSpec, Replica, ReplicaExit
from tests.providers.child_engine import ChildEngine, ChildSpec
from tests.providers.patience import told_in_time

pytestmark = pytest.mark.anyio


def engine(*options: list[str], **fields: Any) -> ChildEngine:
    return ChildEngine(ChildSpec(options=[list(each) for each in options] or [[]], **fields))


async def test_replicas_start_side_by_side_and_are_gone_after_the_block() -> None:
    provider = engine(replicas=3, name="table")
    async with provider:
        assert [replica.name for replica in provider.replicas] == ["table-0", "table-1", "table-2"]
        assert len(set(provider.base_urls)) == 3
        assert await provider.alive()
        assert await provider.logs(tail=1) == "line one\nline two"
        assert provider.connections == ["open"]
    assert provider.living == []
    assert provider.replicas == []
    assert provider.connections == ["open", "closed"]


async def test_the_endpoint_has_its_replicas_in_the_order_of_their_names() -> None:
    provider = engine(replicas=3)
    endpoint = await provider.start()
    assert [replica.name for replica in endpoint.replicas] == ["child-0", "child-1", "child-2"]
    assert endpoint.name == "child"
    assert endpoint.base_urls == provider.base_urls
    await provider.stop()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["--crash"], r"child-1 ended before it was ready: exit code 1. It wrote:\nchild-1 says goodbye"),
        (["--refuse"], "the engine refuses child-1"),
    ],
)
async def test_one_replica_that_fails_ends_the_start_and_leaves_none(bad: list[str], message: str) -> None:
    provider = engine([], bad, [], replicas=3, ready_timeout_s=60)
    with pytest.raises(ServerStartError, match=message):
        await provider.start()
    assert provider.living == []
    assert provider.connections == ["open", "closed"]


async def test_one_replica_that_is_never_ready_ends_the_start_and_leaves_none() -> None:
    async def start(seconds: float) -> str:
        provider = engine([], ["--never-ready"], [], replicas=3, ready_timeout_s=seconds)
        with pytest.raises(ServerStartError) as caught:
            await provider.start()
        assert provider.living == []
        assert provider.connections == ["open", "closed"]
        return str(caught.value)

    # Where the machine is slow, another than this one is the first whose time is up.
    told = await told_in_time(start, "child-1", "503")
    assert re.search(r"child-1 was not ready within \d+ s: GET http://127.0.0.1:\d+/health: answered .*503", told)


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    provider = engine(["--never-ready"], replicas=3)
    launched = anyio.Event()
    loop = asyncio.get_running_loop()
    provider.before_launch = lambda name: loop.call_soon_threadsafe(launched.set) if name == "child-2" else None
    async with anyio.create_task_group() as group:
        group.start_soon(provider.start)
        await launched.wait()
        group.cancel_scope.cancel()
    assert provider.living == []
    assert provider.connections == ["open", "closed"]


async def test_an_engine_that_is_away_is_told_as_itself_and_the_next_start_tries_again() -> None:
    provider = engine(replicas=2)
    provider.refuse_connection = True
    with pytest.raises(ProviderError, match="the engine is away"):
        await provider.start()
    with pytest.raises(ProviderError, match="the engine is away"):
        await provider.add_replica()
    provider.refuse_connection = False
    async with provider:
        assert len(provider.replicas) == 2
    assert provider.connections.count("open") == provider.connections.count("closed")


async def test_replicas_are_added_and_removed_side_by_side() -> None:
    provider = engine()
    added: list[Replica] = []

    async def add() -> None:
        added.append(await provider.add_replica())

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(add)
    assert provider.connections == ["open"]
    async with anyio.create_task_group() as group:
        for replica in added[:3]:
            group.start_soon(provider.remove_replica, replica)
            group.start_soon(provider.remove_replica, replica)
    assert provider.replicas == added[3:]
    assert len(provider.living) == 1
    assert not await provider.alive(added[0])
    await provider.stop()
    assert provider.living == []


async def test_a_replica_that_fails_to_start_leaves_the_others_alone() -> None:
    provider = engine([], ["--crash"])
    async with provider:
        with pytest.raises(ServerStartError, match="ended before it was ready"):
            await provider.add_replica()
        assert await provider.alive()
        assert len(provider.living) == 1


async def test_stop_ends_a_replica_that_is_on_its_way() -> None:
    provider = engine([], ["--never-ready"])
    launched = anyio.Event()
    loop = asyncio.get_running_loop()
    await provider.start()
    provider.before_launch = lambda name: loop.call_soon_threadsafe(launched.set)

    async def add() -> None:
        with pytest.raises(ProviderError, match="the provider was stopped while a replica started"):
            await provider.add_replica()

    async with anyio.create_task_group() as group:
        group.start_soon(add)
        await launched.wait()
        await provider.stop()
    assert provider.living == []
    assert provider.connections == ["open", "closed"]


async def test_all_that_stop_at_once_return_when_all_is_gone() -> None:
    provider = engine(replicas=2)
    await provider.start()
    async with anyio.create_task_group() as group:
        for _ in range(60):  # more than there are threads for
            group.start_soon(provider.stop)
        group.start_soon(anyio.to_thread.run_sync, provider.stop_sync)
    assert provider.living == []


async def test_one_removal_that_fails_keeps_no_other_from_going() -> None:
    provider = engine(replicas=3)
    await provider.start()
    provider.refuse_removal = {"child-1"}
    with pytest.raises(ProviderError, match="child-1 would not go"):
        await provider.stop()
    assert provider.living == []
    assert provider.connections == ["open", "closed"]
    provider.refuse_removal = set()
    async with provider:
        assert len(provider.replicas) == 3


async def test_exits_come_in_their_order_each_once_also_those_from_before_the_wait() -> None:
    told: list[ReplicaExit] = []
    heard = threading.Event()

    def hear(gone: ReplicaExit) -> None:
        told.append(gone)
        heard.set()

    provider = ChildEngine(ChildSpec(replicas=3), on_exit=hear)
    async with provider:
        first, second, third = provider.replicas
        provider.kill(second)
        with anyio.fail_after(60):
            gone = await provider.wait_exited()
        assert (gone.replica, gone.exit_code, gone.log_tail) == (second, -9, "child-1 says goodbye")
        assert "has died: ended with exit code -9" in gone.message
        assert await anyio.to_thread.run_sync(heard.wait, 60)
        for each in (first, third):
            heard.clear()
            provider.kill(each)
            assert await anyio.to_thread.run_sync(heard.wait, 60)
        assert [(await provider.wait_exited()).replica for _ in range(2)] == [first, third]
        assert provider.replicas == []
        assert await provider.logs(first) == "child-0 says goodbye"
        await provider.remove_replica(first)
        with pytest.raises(ProviderError, match="does not run child-0"):
            await provider.logs(first)
    assert [each.replica for each in told] == [second, first, third]


async def test_a_replica_that_is_removed_is_no_exit_and_stop_sends_waiters_away() -> None:
    told: list[ReplicaExit] = []
    provider = ChildEngine(ChildSpec(replicas=2), on_exit=told.append)
    await provider.start()

    async def wait() -> None:
        with pytest.raises(ProviderError, match="was stopped"):
            await provider.wait_exited()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await provider.remove_replica(provider.replicas[0])
        await provider.stop()
    assert told == []
    with pytest.raises(ProviderError, match="does not run"):
        await provider.wait_exited()


async def test_what_ends_a_program_ends_no_loop_of_a_provider() -> None:
    def leave(name: str) -> None:
        raise SystemExit(3)

    provider = engine()
    async with provider:
        provider.before_launch = leave
        with pytest.raises(SystemExit):
            await provider.add_replica()
        assert await provider.alive()
    assert provider.living == []


async def test_a_callback_that_fails_keeps_no_exit_back() -> None:
    def fail(gone: ReplicaExit) -> None:
        raise ZeroDivisionError

    provider = ChildEngine(ChildSpec(), on_exit=fail)
    async with provider:
        provider.kill(provider.replicas[0])
        with anyio.fail_after(60):
            assert (await provider.wait_exited()).exit_code == -9


@pytest.mark.parametrize("then", ["stop", "replace", "leave", "interrupt"])
def test_a_callback_may_use_its_provider_and_raise_whatever(then: str) -> None:
    over = threading.Event()

    def on_exit(gone: ReplicaExit) -> None:
        try:
            if then == "stop":
                provider.stop_sync()
            elif then == "replace":
                provider.remove_replica_sync(gone.replica)
                provider.add_replica_sync()
            else:
                raise SystemExit(3) if then == "leave" else KeyboardInterrupt
        finally:
            over.set()

    provider = ChildEngine(ChildSpec(replicas=2), on_exit=on_exit)
    provider.start_sync()
    provider.kill(provider.replicas[0])
    assert over.wait(60)
    assert len(provider.living) == {"stop": 0, "replace": 2}.get(then, 1)
    assert provider.alive_sync() == (then == "replace")
    provider.stop_sync()
    assert provider.living == []


async def test_a_callback_that_does_not_return_holds_nothing_up_and_keeps_the_exits_that_follow() -> None:
    told: list[ReplicaExit] = []
    let_go, all_told = threading.Event(), threading.Event()

    def on_exit(gone: ReplicaExit) -> None:
        assert let_go.wait(120)
        told.append(gone)
        if len(told) == 2:
            all_told.set()

    provider = ChildEngine(ChildSpec(replicas=3), on_exit=on_exit)
    with anyio.fail_after(100):
        await provider.start()
        first, second, third = provider.replicas
        provider.kill(first)
        assert (await provider.wait_exited()).replica == first
        provider.kill(second)
        assert (await provider.wait_exited()).replica == second
        assert await provider.alive(third)
        await provider.stop()
    assert told == []
    let_go.set()
    assert await anyio.to_thread.run_sync(all_told.wait, 60)
    assert [each.replica for each in told] == [first, second]


def test_it_is_used_without_a_loop_from_any_thread() -> None:
    provider = engine(replicas=2)
    endpoint = provider.start_sync()
    provider.wait_ready_sync()
    assert provider.alive_sync()
    added = provider.add_replica_sync()
    provider.remove_replica_sync(endpoint.replicas[0])
    stopper = threading.Thread(target=provider.stop_sync)
    stopper.start()
    stopper.join()
    assert provider.living == []
    assert added.name == "child-2"
    assert len(provider.threads) == 1  # the engine saw one thread, whoever called


async def test_the_sync_face_works_within_a_running_loop() -> None:
    provider = engine()
    with provider:
        assert provider.alive_sync()
        assert await provider.alive()
    assert provider.living == []


def test_it_may_be_stopped_from_another_loop_than_it_was_started_on() -> None:
    provider = engine()
    anyio.run(provider.start)
    assert anyio.run(provider.alive)
    anyio.run(provider.stop)
    assert provider.living == []
    anyio.run(provider.stop)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_copy_stops_nothing_and_is_told_so_by_every_other_call() -> None:
    provider = engine(replicas=2)
    with provider:
        pid = os.fork()
        if pid == 0:
            wrong = 1
            try:
                replica = provider.replicas[0]
                provider.stop_sync()
                for call in (
                    provider.start_sync,
                    provider.check_sync,
                    provider.add_replica_sync,
                    lambda: provider.remove_replica_sync(replica),
                    provider.wait_ready_sync,
                    provider.logs_sync,
                    provider.alive_sync,
                    lambda: anyio.run(provider.wait_exited),
                ):
                    with pytest.raises(ProviderError, match="forked from"):
                        call()
                provider.stop_sync()
                wrong = 0
            finally:
                os._exit(wrong)
        assert os.waitpid(pid, 0)[1] == 0
        assert provider.alive_sync()
        assert len(provider.living) == 2
    assert provider.living == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_was_not_started_before_a_fork_runs_in_the_copy_and_tells_its_callbacks() -> None:
    heard = threading.Event()
    provider = ChildEngine(ChildSpec(), on_exit=lambda gone: heard.set())
    with provider:  # its threads are not in the copy
        provider.kill(provider.replicas[0])
        assert heard.wait(60)
    pid = os.fork()
    if pid == 0:
        wrong = 1
        try:
            heard.clear()
            with provider:
                provider.kill(provider.replicas[0])
                assert heard.wait(60)
            assert not [child for child in provider.living if child != provider.pids[0]]
            wrong = 0
        finally:
            os._exit(wrong)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
async def test_a_log_that_cannot_be_written_is_told_once_and_keeps_nothing_from_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with engine(log_path=Path("/dev/full")) as provider:
        provider._sink.line("child-0", *["a line"] * 100)
    assert provider.living == []
    assert provider.connections == ["open", "closed"]
    assert len([each for each in caplog.records if "cannot be written" in each.getMessage()]) == 1


async def test_lines_that_come_faster_than_they_are_taken_are_left_out_and_counted() -> None:
    let_go = threading.Event()
    told: list[str] = []

    def on_log(name: str, line: str) -> None:
        assert let_go.wait(60)
        told.append(line)

    async with ChildEngine(ChildSpec(), on_log=on_log) as provider:
        for number in range(30):
            provider._sink.line("child-0", *[str(number)] * 1000)
        let_go.set()
    assert 10_000 <= len(told) < 12_000
    assert told[0] == "0"
    counts = [int(line.split()[1]) for line in told if "left out" in line]
    assert sum(counts) + len(told) - len(counts) == 30_000


async def test_a_second_start_is_refused_and_a_start_after_a_stop_is_not() -> None:
    provider = engine()
    async with provider:
        with pytest.raises(ProviderError, match="runs already"):
            await provider.start()
        assert len(provider.living) == 1
    async with provider:
        assert await provider.alive()


async def test_what_is_to_be_run_may_be_said_at_the_start_and_must_be_of_the_right_kind(tmp_path: Path) -> None:
    provider = ChildEngine()
    for call in (provider.start, provider.add_replica):
        with pytest.raises(ConfigurationError, match="nothing to run: give it a ChildSpec"):
            await call()
    with pytest.raises(ConfigurationError, match="runs a ChildSpec, and was given a ProcessSpec"):
        await provider.start(ProcessSpec(environment=str(tmp_path)))
    await provider.start(ChildSpec(replicas=2))
    assert len(provider.replicas) == 2
    await provider.stop()
    assert await provider.alive() is False
