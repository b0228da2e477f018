"""Where an environment's code runs, so that it never stops the server.

Asynchronous hooks run on the event loop, and so does everything of a class that says ``EXECUTION = "loop"``. Everything
else may block and runs in a worker thread, lent for one call: an idle session holds no thread, and there are never more
threads than calls that run. A class that sets ``REQUIRES_SINGLE_THREAD_EXECUTOR`` has all its instances built, used and
closed in one and the same thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from openenv_trl.server.hooks import Hooks
from openenv_trl.server.settings import Execution
from openenv_trl.server.thread_budget import ThreadBudget
from openenv_trl.server.worker_threads import ThreadCall, ThreadPool

Value = TypeVar("Value")


class Where(Enum):
    """Where one hook runs."""

    LOOP = "called on the event loop"
    AWAITED = "awaited on the event loop"
    THREAD = "in a thread"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each hook of one environment runs."""

    reset: Where
    step: Where
    state: Where
    close: Where
    async_tools: frozenset[str]
    other: Where
    in_own_loop: bool = False

    def tool(self, name: str) -> Where:
        """Where the tool of that name runs."""
        return Where.AWAITED if name in self.async_tools else self.other


def placement_of(hooks: Hooks, execution: Execution) -> Placement:
    """Return where the hooks of a class run; "process" is that of the object that stands for the environment here."""
    if execution == "process":
        return Placement(*[Where.AWAITED] * 4, async_tools=frozenset(), other=Where.AWAITED)
    if execution == "thread":
        return Placement(*[Where.THREAD] * 4, async_tools=frozenset(), other=Where.THREAD, in_own_loop=True)
    other = Where.LOOP if execution == "loop" else Where.THREAD
    return Placement(
        reset=Where.AWAITED if hooks.async_reset else other,
        step=Where.AWAITED if hooks.async_step else other,
        state=Where.LOOP if hooks.async_step else other,
        close=other,
        async_tools=hooks.async_tools,
        other=other,
    )


class WorkerThreads:
    """Threads lent out by the call; as many as `ThreadBudget` says."""

    def __init__(self, max_threads: int) -> None:
        self._pool = ThreadPool(ThreadBudget(max_threads))

    async def run(self, function: Callable[..., Value], *args: Any) -> Value:
        """Call the function in a thread. A cancelled caller still waits for it: a thread cannot be stopped."""
        return await self.lend(function, *args).finished()

    def lend(self, function: Callable[..., Value], *args: Any, **kwargs: Any) -> ThreadCall[Value]:
        """Have the function called in a thread, as soon as one is free."""
        return self._pool.lend(function, args, kwargs)

    def loosen(self) -> None:
        """The environments turned out to be usable from any thread. Nothing changes here."""

    def shut_down(self) -> None:
        """Let go of the threads, without waiting for calls that may still run in them."""
        self._pool.shut_down()


class SingleThread(WorkerThreads):
    """One thread for every call, in the order they come.

    Args:
        max_threads: The limit where it turns out that the environments do not need this; see `loosen`.
    """

    def __init__(self, max_threads: int = 1) -> None:
        self._max_threads = max_threads
        self._pool = ThreadPool(ThreadBudget(1), always_the_same=True)

    def loosen(self) -> None:
        """Be like `WorkerThreads` from now on."""
        self._pool.loosen(ThreadBudget(self._max_threads))


Executor = WorkerThreads
