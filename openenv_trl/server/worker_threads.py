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
from openenv_trl.server.call_failure import ENDS_PROGRAMS
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
        worker: The thread that it runs in, once it has begun.
        seconds: How long the function took, once it has ended.
        value: What it returned.
        error: What it raised.
        replaced: Whether another thread took the place of the one that it was left behind in.
    """

    __slots__ = (
        "_args",
        "_context",
        "_function",
        "_kwargs",
        "_orphaned",
        "_owner",
        "_pool",
        "error",
        "future",
        "replaced",
        "seconds",
        "value",
        "worker",
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
        self._owner = [None]  # who takes the one thing out of it decides: the thread at its end, or who abandons it
        self.future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self.worker: _Worker | None = None
        self.replaced = False
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
        """Wait no longer. False where there is nothing to leave behind: the call has ended, or never begins now.

        Args:
            orphaned: Called in the thread when the function has ended at last.
        """
        return self._pool.abandon(self, orphaned)

    def leave_behind(self, orphaned: Callable[[], None]) -> bool:
        """Note that nobody waits. False where the function has ended."""
        self._orphaned = orphaned
        return self._decide()

    def run(self) -> bool:
        """In the thread: call the function, and keep what comes of it. False where nobody waits for that any more."""
        begin = time.perf_counter()  # here, as a busy event loop must not pass for a long call
        try:
            self.value = self._context.run(self._function, *self._args, **self._kwargs)
        except (StopIteration, GeneratorExit, *ENDS_PROGRAMS) as error:
            # A future cannot carry the first; on the event loop the others would end the server, or its task unheard.
            self.error = EnvironmentExecutionError(f"the environment raised {type(error).__name__}")
            self.error.__cause__ = error
        except BaseException as error:
            self.error = error
        self.seconds = time.perf_counter() - begin
        return self._decide()

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

    def _decide(self) -> bool:
        try:
            self._owner.pop()
        except IndexError:
            return False
        return True


class ThreadPool:
    """The threads of one server.

    There is no lock: a list, a set and a deque change in one piece each. Where a thread and the event loop miss each
    other in between, `_settle` follows, which gives the calls that wait their threads.

    Args:
        budget: How many there may be.
        always_the_same: One thread for ever, also under a call that does not end.
    """

    def __init__(self, budget: ThreadBudget, *, always_the_same: bool = False) -> None:
        self._budget = budget
        self._always_the_same = always_the_same
        self._backlog: deque[ThreadCall[Any]] = deque()
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
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
        self._backlog.append(call)
        if self._at_work >= self._budget.threads:
            self._budget.call_waits()
        self._set_to_work()
        if self._patience is None and self._backlog:
            self._be_patient(_PATIENCE_S)
        return call

    def abandon(self, call: ThreadCall[Any], orphaned: Callable[[], None]) -> bool:
        """See `ThreadCall.abandon`. On the event loop."""
        left = False
        try:
            self._backlog.remove(call)
        except ValueError:  # it has begun
            call.replaced = not self._always_the_same
            left = call.leave_behind(orphaned)
        if not call.future.done():
            call.future.set_exception(CallAbandonedError())
            call.future.exception()  # looked at, so that nobody misses it where nobody waits
        if left and call.replaced and call.worker is not None:
            self.leave(call.worker)
            self._set_to_work()
        return left

    def leave(self, worker: _Worker) -> None:
        """A thread takes no more calls: it ends, or was left behind."""
        self._workers.discard(worker)

    def loosen(self, budget: ThreadBudget) -> None:
        """It need not be one and the same thread any longer."""
        if self._always_the_same:
            self._always_the_same = False
            self._budget = budget

    def shut_down(self) -> None:
        """End the threads that are idle; others end some time after their call."""
        while self._idle:
            worker = self._idle.pop()
            self.leave(worker)
            worker.hand(None)

    def next_call(self, worker: _Worker, last: ThreadCall[Any]) -> ThreadCall[Any] | None:
        """In a thread: hand the last call over, and return the next; None where the thread has to wait for one."""
        call = None
        if self._backlog and self._at_work <= self._budget.threads:
            try:
                call = self._backlog.popleft()
            except IndexError:  # another thread was faster
                call = None
        if call is None:
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
        try:
            self._idle.remove(worker)
        except ValueError:
            return False
        self.leave(worker)
        return True

    @property
    def _at_work(self) -> int:
        return len(self._workers) - len(self._idle)

    def _set_to_work(self) -> None:
        """On the event loop: give the calls that wait their threads, within the budget."""
        while self._backlog and self._at_work < self._budget.threads:
            try:
                call = self._backlog.popleft()
            except IndexError:  # a thread took it
                return
            try:
                worker = self._idle.pop()
            except IndexError:
                worker = _Worker(self, None if self._always_the_same else _IDLE_S)
                self._workers.add(worker)
                worker.hand(call)
                worker.start()
            else:
                worker.hand(call)

    def _settle(self) -> None:
        self._wake_up_sent = False  # first: what ends from now on sends another
        while self._ended:
            call = self._ended.popleft()
            call.settle()
            self._budget.call_returned(call.seconds, self._at_work)
        if self._backlog:
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
            call.worker = self
            if call.replaced:  # abandoned before anybody could know whose call it was
                pool.leave(self)
            if not call.run():
                call.clean_up()
                if call.replaced:
                    pool.leave(self)
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
