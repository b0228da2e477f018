"""Threads that take blocking calls from an event loop, and can be left behind with a call that does not end.

Promises: calls begin in the order they came; a call's end reaches the event loop however many end at once, with one
wake-up for all; a thread that has nothing to do for a while ends; a call that was abandoned costs the others nothing.
The threads are daemons: a call that never ends does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import anyio

from openenv_trl.errors import EnvironmentExecutionError
from openenv_trl.server.thread_budget import ThreadBudget

logger = logging.getLogger("openenv_trl.server")

Value = TypeVar("Value")

_IDLE_S = 10.0  # a thread without work for so long ends
_PATIENCE_S = 0.05  # of calls that find no thread, before more threads are asked for; then twice as long in vain


class CallAbandonedError(Exception):
    """Nobody waits for the call any longer."""


class ThreadCall(Generic[Value]):
    """One call, from its lending to its end.

    Attributes:
        future: Gets what the function returns or raises; the event loop's.
        begun: Whether it has its thread.
        ended: Whether the function has returned or raised.
        seconds: How long it took, once it has ended.
        value: What it returned.
        error: What it raised.
        was_replaced: Whether another thread took the place of the one that it was left behind in.
    """

    __slots__ = (
        "_args",
        "_context",
        "_function",
        "_kwargs",
        "_orphaned",
        "_pool",
        "begun",
        "ended",
        "error",
        "future",
        "seconds",
        "value",
        "was_replaced",
    )

    def __init__(
        self, pool: ThreadPool, function: Callable[..., Value], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._pool = pool
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self._context = contextvars.copy_context()
        self._orphaned: Callable[[], None] | None = None
        self.future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self.begun = False
        self.ended = False
        self.was_replaced = False
        self.seconds = 0.0
        self.value: Any = None
        self.error: BaseException | None = None

    async def finished(self) -> Value:
        """Wait for the end, through any cancellation, and return or raise what the function did.

        Raises:
            CallAbandonedError: Somebody abandoned it meanwhile.
        """
        with anyio.CancelScope(shield=True):
            return await self.future
        raise AssertionError("nobody cancels this scope")

    def abandon(self, orphaned: Callable[[], None]) -> bool:
        """Wait no longer. False where there is nothing to abandon: the call has ended, or never begins now.

        Args:
            orphaned: Called in the thread when the function has ended at last.
        """
        return self._pool.abandon(self, orphaned)

    def run(self) -> None:
        """In the thread: call the function, and keep what comes of it."""
        begin = time.perf_counter()  # here, as a busy event loop must not pass for a long call
        try:
            self.value = self._context.run(self._function, *self._args, **self._kwargs)
        except StopIteration as error:
            # A future cannot carry it: the waiting session would never hear of it.
            self.error = EnvironmentExecutionError("the environment raised StopIteration")
            self.error.__cause__ = error
        except (SystemExit, KeyboardInterrupt) as error:
            # On the event loop these would end the server.
            self.error = EnvironmentExecutionError(f"the environment raised {type(error).__name__}")
            self.error.__cause__ = error
        except BaseException as error:
            self.error = error
        self.seconds = time.perf_counter() - begin

    def leave_behind(self, orphaned: Callable[[], None], *, replaced: bool) -> None:
        """Note that nobody waits; under the pool's lock."""
        self._orphaned = orphaned
        self.was_replaced = replaced

    @property
    def is_left_behind(self) -> bool:
        """Whether nobody waits."""
        return self._orphaned is not None

    def clean_up(self) -> None:
        """In the thread, after a call that nobody waits for."""
        try:
            assert self._orphaned is not None
            self._orphaned()
        except Exception:  # boundary: what cleans up calls an environment's code
            logger.exception("Clearing up after an abandoned call failed")

    def settle(self) -> None:
        """On the event loop: hand over what came of the call."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
            self.error = None  # it would hold its own traceback, and that the call, for the garbage collector to find
        else:
            self.future.set_result(self.value)


class ThreadPool:
    """The threads of one server.

    Args:
        budget: How many there may be.
        always_the_same: One thread for ever, also under a call that does not end.
    """

    def __init__(self, budget: ThreadBudget, *, always_the_same: bool = False) -> None:
        self._budget = budget
        self._always_the_same = always_the_same
        self._lock = threading.Lock()  # guards all down to _loop
        self._backlog: deque[ThreadCall[Any]] = deque()
        self._idle: list[_Worker] = []
        self._workers = 0
        self._ended: deque[ThreadCall[Any]] = deque()
        self._wake_up_sent = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._patience_s = _PATIENCE_S

    def lend(self, function: Callable[..., Value], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ThreadCall[Value]:
        """Have the function called in a thread, as soon as one is free. On the event loop."""
        call = ThreadCall(self, function, args, kwargs)
        loop = call.future.get_loop()
        if loop is not self._loop:
            self._move_to(loop)
        with self._lock:
            self._backlog.append(call)
            if self._at_work >= self._budget.threads:
                self._budget.call_waits()
            self._set_to_work()
        if not call.begun and self._patience is None:
            self._be_patient(_PATIENCE_S)
        return call

    def abandon(self, call: ThreadCall[Any], orphaned: Callable[[], None]) -> bool:
        """See `ThreadCall.abandon`."""
        with self._lock:
            left = call.begun and not call.ended
            if left:
                call.leave_behind(orphaned, replaced=not self._always_the_same)
                if call.was_replaced:
                    self._workers -= 1
                    self._set_to_work()
            elif not call.begun:
                self._backlog.remove(call)
        if not call.future.done():
            call.future.set_exception(CallAbandonedError())
        return left

    def loosen(self, budget: ThreadBudget) -> None:
        """It need not be one and the same thread any longer."""
        with self._lock:
            if self._always_the_same:
                self._always_the_same = False
                self._budget = budget

    def shut_down(self) -> None:
        """End the threads that are idle; others end some time after their call."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._workers -= len(idle)
        for worker in idle:
            worker.hand(None)

    def finish(self, call: ThreadCall[Any]) -> None:
        """In a thread: the call has ended, and cannot be left behind any more."""
        with self._lock:
            call.ended = True

    def next_call(self, worker: _Worker, last: ThreadCall[Any]) -> ThreadCall[Any] | None:
        """In a thread: hand the last call over, and return the next; None where the thread has to wait for one."""
        call = None
        with self._lock:
            if self._backlog and self._at_work <= self._budget.threads:
                call = self._backlog.popleft()
                call.begun = True
            else:
                self._idle.append(worker)
        self._ended.append(last)
        if not self._wake_up_sent:
            self._wake_up_sent = True
            try:
                last.future.get_loop().call_soon_threadsafe(self._settle)
            except RuntimeError:  # the event loop is closed: nobody waits any longer
                self._wake_up_sent = False
        return call

    def retire(self, worker: _Worker) -> bool:
        """In a thread: may it end, having waited for work in vain? False where a call is on its way to it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            self._workers -= 1
            return True

    @property
    def _at_work(self) -> int:
        return self._workers - len(self._idle)

    def _set_to_work(self) -> None:
        """Under the lock: give the calls that wait their threads, within the budget."""
        while self._backlog and self._at_work < self._budget.threads:
            call = self._backlog.popleft()
            call.begun = True
            if self._idle:
                self._idle.pop().hand(call)
                continue
            self._workers += 1
            worker = _Worker(self, None if self._always_the_same else _IDLE_S)
            worker.hand(call)
            worker.start()

    def _settle(self) -> None:
        self._wake_up_sent = False  # first: what ends from now on sends another
        while self._ended:
            call = self._ended.popleft()
            call.settle()
            self._budget.call_returned(call.seconds, self._at_work)
        if self._backlog:
            with self._lock:
                self._budget.calls_wait(len(self._backlog))
                self._set_to_work()

    def _be_patient(self, seconds: float) -> None:
        self._patience_s = seconds
        assert self._loop is not None
        self._patience = self._loop.call_later(seconds, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        if not self._backlog:
            return
        with self._lock:
            before = self._budget.threads
            self._budget.call_waits(self._at_work)
            self._set_to_work()
        if self._backlog:
            self._be_patient(2 * self._patience_s if self._budget.threads == before else _PATIENCE_S)

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        # A host without a lifespan may serve one event loop after another; what was sent to the last may never arrive.
        self._loop = loop
        self._wake_up_sent = False
        self._patience = None
        self._ended.clear()


class _Worker(threading.Thread):
    def __init__(self, pool: ThreadPool, idle_s: float | None) -> None:
        super().__init__(name="environment", daemon=True)
        self._pool = pool
        self._idle_s = idle_s
        self._calls: SimpleQueue[ThreadCall[Any] | None] = SimpleQueue()

    def hand(self, call: ThreadCall[Any] | None) -> None:
        """Give the thread a call; None for its end."""
        self._calls.put(call)

    def run(self) -> None:
        """Take calls until there are none for a while."""
        pool, call = self._pool, self._calls.get()
        while call is not None:
            call.run()
            pool.finish(call)
            if call.is_left_behind:
                call.clean_up()
                if call.was_replaced:
                    return
            call = pool.next_call(self, call)
            if call is None:  # and so, while it waits, nothing here keeps the last call's environment alive
                call = self._wait()

    def _wait(self) -> ThreadCall[Any] | None:
        while True:
            try:
                return self._calls.get(timeout=self._idle_s)
            except Empty:
                if self._pool.retire(self):
                    return None
