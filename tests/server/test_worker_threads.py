"""Threads for blocking calls: enough of them, none too many, and none that another call waits for in vain."""

from __future__ import annotations

import contextvars
import queue
import threading
from typing import Any

import anyio
import pytest

from openenv_trl.errors import EnvironmentExecutionError
from openenv_trl.server import thread_budget, worker_threads
from openenv_trl.server.execution import SingleThread, WorkerThreads
from openenv_trl.server.worker_threads import CallAbandonedError

pytestmark = pytest.mark.anyio


async def _until(condition: Any) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in threads
            await anyio.sleep(0.001)


async def test_as_many_calls_as_block_run_at_once() -> None:
    threads, together = WorkerThreads(400), threading.Barrier(300, timeout=60)
    async with anyio.create_task_group() as tasks:
        for _ in range(300):
            tasks.start_soon(threads.run, together.wait)
    threads.shut_down()


async def test_short_calls_share_a_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a machine that stands still now and then, a short call may take long, and its turn may come late.
    monkeypatch.setattr(thread_budget, "LONG_CALL_S", 60.0)
    monkeypatch.setattr(worker_threads, "_PATIENCE_S", 60.0)
    threads, idents = WorkerThreads(400), set[int]()
    async with anyio.create_task_group() as tasks:
        for _ in range(400):
            tasks.start_soon(threads.run, lambda: idents.add(threading.get_ident()))
    assert len(idents) <= 8
    threads.shut_down()


async def test_idle_threads_end_when_they_are_let_go() -> None:
    others, threads = set(threading.enumerate()), WorkerThreads(8)  # threads of an earlier test may just be ending
    for _ in range(20):
        await threads.run(int)
    own = {each for each in set(threading.enumerate()) - others if each.name == "environment"}
    assert len(own) == 1
    threads.shut_down()
    await _until(lambda: not own & set(threading.enumerate()))
    assert await threads.run(int, "7") == 7  # and are there again for whoever comes
    threads.shut_down()


async def test_calls_begin_in_the_order_they_came() -> None:
    threads, order = SingleThread(), list[int]()
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(threads.run, order.append, number)
    assert order == list(range(50))


async def test_what_a_call_raises_reaches_its_caller() -> None:
    def stop() -> None:
        raise StopIteration

    def leave() -> None:
        raise SystemExit(3)

    threads = WorkerThreads(2)
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 / 0)
    for function in (stop, leave):
        with pytest.raises(EnvironmentExecutionError, match=r"StopIteration|SystemExit"):
            await threads.run(function)


async def test_a_call_sees_its_callers_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")
    assert await WorkerThreads(2).run(variable.get) == "mine"


async def test_an_abandoned_call_gives_its_place_to_others_and_is_cleaned_up_after() -> None:
    threads, gate, cleaned = WorkerThreads(1), threading.Event(), threading.Event()
    entered = threading.Event()

    def stuck() -> None:
        entered.set()
        gate.wait(30)

    call = threads.lend(stuck)
    await _until(entered.is_set)
    behind = threads.lend(int)
    assert call.abandon(cleaned.set)
    assert await behind.finished() == 0
    with pytest.raises(CallAbandonedError):
        await call.finished()
    assert not cleaned.is_set()
    gate.set()
    await _until(cleaned.is_set)


async def test_a_call_abandoned_before_its_thread_is_known_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_begin, gate, cleaned = threading.Event(), threading.Event(), threading.Event()

    class LateQueue(queue.Queue[Any]):
        """Of a thread that has its call, and has not looked yet."""

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            assert may_begin.wait(30)
            return super().get(block, timeout)

    monkeypatch.setattr(worker_threads, "SimpleQueue", LateQueue)
    threads = WorkerThreads(1)
    call = threads.lend(gate.wait, 60)
    assert call.abandon(cleaned.set)
    may_begin.set()
    try:
        behind = threads.lend(int, "7")
        await _until(behind.future.done)
        assert not cleaned.is_set()
    finally:
        gate.set()
    await _until(cleaned.is_set)
    threads.shut_down()


async def test_a_call_that_has_not_begun_never_does_once_it_is_abandoned() -> None:
    threads, gate, calls = SingleThread(), threading.Event(), list[str]()
    first = threads.lend(gate.wait, 30)
    second = threads.lend(calls.append, "second")
    assert not second.abandon(lambda: calls.append("cleaned"))
    gate.set()
    assert await first.finished()
    await threads.run(calls.append, "third")
    assert calls == ["third"]


async def test_a_call_that_has_ended_cannot_be_abandoned() -> None:
    threads = WorkerThreads(1)
    call = threads.lend(int)
    await call.finished()
    assert not call.abandon(lambda: pytest.fail("there is nothing to clean up"))


async def test_a_call_abandoned_at_the_moment_of_its_end_is_cleaned_up_or_done_but_not_both() -> None:
    threads = WorkerThreads(4)
    for _ in range(300):
        cleaned = threading.Event()
        call = threads.lend(int)
        if call.abandon(cleaned.set):
            await _until(cleaned.is_set)
        else:
            assert not cleaned.is_set()
    assert await threads.run(int, "7") == 7
    threads.shut_down()


def test_threads_serve_one_event_loop_after_another() -> None:
    threads = WorkerThreads(4)
    for number in range(3):
        assert anyio.run(threads.run, int, str(number)) == number
    threads.shut_down()
