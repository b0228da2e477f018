"""Where an environment's code runs, so that it never stops the server.

Asynchronous hooks run on the event loop. Everything else may block and runs in a worker thread, lent for one call: an
idle session holds no thread, and there are never more threads than calls that run. A class that sets
``REQUIRES_SINGLE_THREAD_EXECUTOR`` has all its instances built, used and closed in one and the same thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from openenv_trl.errors import EnvironmentExecutionError
from openenv_trl.server.thread_budget import ThreadBudget

Value = TypeVar("Value")

_PATIENCE_S = 0.05  # of a call that finds no thread, before it asks again; then twice as long while nothing changes


class WorkerThreads:
    """Threads lent out by the call; as many as `ThreadBudget` says."""

    def __init__(self, max_threads: int) -> None:
        self._budget = ThreadBudget(max_threads)
        self._admission: anyio.CapacityLimiter | None = None
        self._unlimited: anyio.CapacityLimiter | None = None
        self._at_work: set[object] = set()  # changed by the threads themselves: whole operations of a set are atomic

    async def run(self, function: Callable[..., Value], *args: Any) -> Value:
        """Call the function in a thread. A cancelled caller still waits for it: a thread cannot be stopped."""
        if self._admission is None or self._unlimited is None:
            self._admission = anyio.CapacityLimiter(self._budget.threads)
            self._unlimited = anyio.CapacityLimiter(math.inf)
        admission, budget, caller = self._admission, self._budget, object()
        try:
            admission.acquire_on_behalf_of_nowait(caller)
        except anyio.WouldBlock:
            await self._wait(admission, caller)
        spent: list[float] = []
        call = functools.partial(self._timed, caller, spent, function, *args)
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._unlimited)
        finally:
            admission.release_on_behalf_of(caller)
            budget.call_returned(sum(spent), admission.borrowed_tokens)
            admission.total_tokens = budget.threads

    def shut_down(self) -> None:
        """Nothing to do: the threads belong to the event loop."""

    async def _wait(self, admission: anyio.CapacityLimiter, caller: object) -> None:
        at_work, patience_s = None, _PATIENCE_S
        while True:
            self._budget.call_waits(at_work)
            admission.total_tokens = threads = self._budget.threads
            with anyio.move_on_after(patience_s):
                await admission.acquire_on_behalf_of(caller)
                return
            at_work = len(self._at_work)
            patience_s = 2 * patience_s if self._budget.threads == threads else _PATIENCE_S

    def _timed(self, caller: object, spent: list[float], function: Callable[..., Value], *args: Any) -> Value:
        # In the thread: a busy event loop must not pass for a long call.
        self._at_work.add(caller)
        begin = time.perf_counter()
        try:
            return function(*args)
        finally:
            spent.append(time.perf_counter() - begin)
            self._at_work.discard(caller)


class SingleThread:
    """One thread for every call, in the order they come."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "environment")

    async def run(self, function: Callable[..., Value], *args: Any) -> Value:
        """Call the function in the thread. A cancelled caller still waits for it: a thread cannot be stopped."""
        call = functools.partial(contextvars.copy_context().run, _without_stop_iteration, function, *args)
        with anyio.CancelScope(shield=True):
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        raise AssertionError("nobody cancels this scope")

    def shut_down(self) -> None:
        """Let go of the thread, without waiting for a call that may still run in it."""
        self._pool.shutdown(wait=False, cancel_futures=True)


Executor = WorkerThreads | SingleThread


def _without_stop_iteration(function: Callable[..., Value], *args: Any) -> Value:
    # A future cannot carry StopIteration: the waiting session would never hear of it.
    try:
        return function(*args)
    except StopIteration as error:
        raise EnvironmentExecutionError("the environment raised StopIteration") from error
