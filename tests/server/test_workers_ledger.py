"""The slots that several worker processes share: one limit, first come first served, and nothing left of the dead."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator

import anyio
import pytest

from openenv_trl.errors import ConfigurationError, SessionCapacityError, SessionStateError
from openenv_trl.server.workers.ledger import STALE_S, SharedLedger, may_take
from openenv_trl.server.workers.memory import MAX_APPLICATIONS, SharedMemory, Standing, WorkerCounts, size_of


@pytest.fixture
def fd() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.truncate(size_of(2))
        yield file.fileno()


@pytest.fixture
def memory(fd: int) -> SharedMemory:
    return SharedMemory(fd, 2)


def test_the_limit_is_for_all_workers_together(memory: SharedMemory) -> None:
    first, second = SharedLedger(memory, 0, 0, 3), SharedLedger(memory, 0, 1, 3)
    first.reserve("a")
    second.reserve("b")
    second.reserve("c")
    with pytest.raises(SessionCapacityError) as refused:
        first.reserve("d")
    assert (refused.value.active_sessions, refused.value.max_sessions) == (3, 3)
    second.release("b")
    first.reserve("d")
    assert first.status.active_sessions == second.status.active_sessions == 3


def test_a_slot_is_taken_and_given_back_once(memory: SharedMemory) -> None:
    ledger = SharedLedger(memory, 0, 0, 3)
    ledger.reserve("a")
    with pytest.raises(SessionStateError, match="already holds"):
        ledger.reserve("a")
    ledger.release("a")
    with pytest.raises(SessionStateError, match="holds no slot"):
        ledger.release("a")
    assert ledger.status.active_sessions == 0


def test_a_dead_workers_slots_come_back(memory: SharedMemory) -> None:
    living, dead = SharedLedger(memory, 0, 0, 2), SharedLedger(memory, 0, 1, 2)
    dead.reserve("a")
    dead.reserve("b")
    memory.forget(1)
    living.reserve("c")
    assert living.status.active_sessions == 1


def test_each_application_of_a_process_has_a_limit_of_its_own(memory: SharedMemory) -> None:
    SharedLedger(memory, 0, 0, 1).reserve("a")
    SharedLedger(memory, 1, 0, 1).reserve("b")
    with pytest.raises(ConfigurationError, match=str(MAX_APPLICATIONS)):
        SharedLedger(memory, MAX_APPLICATIONS, 0, 1)


def test_concurrent_processes_never_pass_the_limit(fd: int, memory: SharedMemory) -> None:
    code = """
        import sys
        from openenv_trl.errors import SessionCapacityError
        from openenv_trl.server.workers.ledger import SharedLedger
        from openenv_trl.server.workers.memory import SharedMemory

        ledger = SharedLedger(SharedMemory(int(sys.argv[1]), 2), 0, int(sys.argv[2]), 100)
        taken = 0
        for number in range(5000):
            try:
                ledger.reserve(str(number))
                taken += 1
                assert ledger.status.active_sessions <= 100
                if number % 3 == 0:
                    ledger.release(str(number))
                    taken -= 1
            except SessionCapacityError:
                pass
        print(taken)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(fd)]
    workers = [
        subprocess.Popen([*command, str(worker)], pass_fds=[fd], stdout=subprocess.PIPE, text=True)
        for worker in range(2)
    ]
    taken = [int(worker.communicate(timeout=60)[0]) for worker in workers]
    assert sum(taken) == 100
    assert [each.active for each in memory.read(0)] == taken


def test_who_waits_longest_in_any_worker_goes_first() -> None:
    earlier_elsewhere = [WorkerCounts(active=1), WorkerCounts(waiting=1, since=5.0, seen=9.0)]
    assert not may_take(earlier_elsewhere, 0, 2, since=7.0, now=9.0)
    assert may_take(earlier_elsewhere, 0, 2, since=4.0, now=9.0)
    assert may_take(earlier_elsewhere, 0, 3, since=7.0, now=9.0)  # a slot for each
    assert may_take(earlier_elsewhere, 1, 2, since=5.0, now=9.0)


def test_a_stuck_worker_keeps_no_slot_for_its_clients() -> None:
    silent = [WorkerCounts(active=1), WorkerCounts(waiting=1, since=5.0, seen=9.0)]
    assert may_take(silent, 0, 2, since=7.0, now=9.0 + STALE_S)


@pytest.mark.anyio
async def test_a_slot_that_another_worker_releases_is_seen_by_whoever_waits(memory: SharedMemory) -> None:
    other, mine = SharedLedger(memory, 0, 0, 1), SharedLedger(memory, 0, 1, 1)
    other.reserve("theirs")
    got = anyio.Event()
    waiting = ["mine"]

    def try_again() -> None:
        if waiting:
            try:
                mine.reserve(waiting[0])
            except SessionCapacityError:
                return
            waiting.clear()
            got.set()

    mine.watch(try_again)
    try_again()
    with anyio.fail_after(60):
        while not mine.waiting:
            await anyio.lowlevel.checkpoint()
        other.release("theirs")
        await got.wait()
        while mine.waiting:
            await anyio.lowlevel.checkpoint()


def test_turns_go_round_the_workers_that_are_up(memory: SharedMemory) -> None:
    assert memory.take_turn() is None
    for worker in range(2):
        memory.set_standing(worker, Standing.UP)
    assert [memory.take_turn() for _ in range(4)] == [0, 1, 0, 1]
    memory.set_standing(0, Standing.LEAVING)
    assert [memory.take_turn() for _ in range(2)] == [1, 1]
