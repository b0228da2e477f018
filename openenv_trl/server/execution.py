"""Where an environment's code runs, so that it never stops the server.

Asynchronous hooks run on the event loop. Everything else may block and runs in a worker thread, lent for one call: an
idle session holds no thread, and there are never more threads than calls that run. A class that sets
``REQUIRES_SINGLE_THREAD_EXECUTOR`` has all its instances built, used and closed in one and the same thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from openenv_trl.errors import EnvironmentExecutionError

Value = TypeVar("Value")


class WorkerThreads:
    """Threads lent out by the call; they grow with the calls that run and go away when idle."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, function: Callable[..., Value], *args: Any) -> Value:
        """Call the function in a thread. A cancelled caller still waits for it: a thread cannot be stopped."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._max_threads)
        return await anyio.to_thread.run_sync(function, *args, limiter=self._limiter)

    def shut_down(self) -> None:
        """Nothing to do: the threads belong to the event loop."""


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
