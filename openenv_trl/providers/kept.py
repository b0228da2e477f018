"""What an engine's provider keeps of each replica: how its start goes, whether it runs, and how it ended."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import anyio

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers.base import Replica, ReplicaExit

IN_A_FORK = (
    "This provider was started by the process that this one was forked from. Its servers can be used from here, by "
    "their addresses; only that process can ask for them, add to them or end them. Make a provider of this process's "
    "own, or start processes with spawn instead of fork."
)
"""What a provider says to a forked copy of its process."""


@dataclass(eq=False)
class Kept:
    """What is known of one replica that was launched."""

    replica: Replica
    ended: anyio.Event = field(default_factory=anyio.Event)
    exit: ReplicaExit | None = None
    ready: bool = False
    removing: bool = False

    def end(self, exit_code: int | None, log_tail: str, reason: str, restarting: bool) -> ReplicaExit:
        """Take note of its end; where its engine starts it again, and it was ready, it is kept."""
        gone = ReplicaExit(self.replica, exit_code, log_tail, restarting and self.ready, reason)
        if not gone.restarting:
            self.exit = gone
            self.ended.set()
        return gone

    def early_end(self) -> ServerStartError | None:
        """What to raise where it has ended before it was ready."""
        if self.exit is None:
            return None
        why = self.exit.reason or f"exit code {self.exit.exit_code}"
        wrote = " It wrote:" if self.exit.log_tail.strip() else " It wrote nothing."
        message = f"{self.replica.name} ended before it was ready: {why}.{wrote}"
        return ServerStartError(message, log_tail=self.exit.log_tail)

    def late(self, timeout_s: float, path: str, last: str, log_tail: str) -> ServerStartError:
        """What to raise where it was not ready in time."""
        return ServerStartError(
            f"{self.replica.name} was not ready within {timeout_s:g} s: GET {self.replica.base_url}{path}: {last}. "
            "Raise ready_timeout_s, or look at what it wrote:",
            log_tail=log_tail,
        )

    async def healthy(self, ask: Callable[[Callable[[], bool]], Awaitable[str]]) -> str:
        """Wait for an answer, or for its end.

        Args:
            ask: Waits until it is healthy, and is given what says whether it has ended; returns "", or what came last.

        Raises:
            ServerStartError: It has ended.
        """
        last = "no answer"
        failures: list[Exception] = []

        async def wait(scope: anyio.CancelScope) -> None:
            nonlocal last
            try:
                last = await ask(lambda: self.exit is not None)
            except Exception as error:
                failures.append(error)
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait, group.cancel_scope)
            await self.ended.wait()
            group.cancel_scope.cancel()
        ended = self.early_end()
        if ended is not None or failures:
            raise ended or failures[0]
        return last


@dataclass(eq=False)
class Start:
    """The start of one replica, until it runs or has failed."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)


class OneForAll:
    """Has one caller do what several ask for at once; the others wait for it, on any loop, and hold no thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Future[None] | None = None

    async def run(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run it, or wait until the run that goes on has ended. Its failure is raised where it runs."""
        with self._lock:
            running = self._running
            over: Future[None] = running or Future()
            self._running = over
        if running is not None:
            await asyncio.shield(asyncio.wrap_future(running))
            return
        try:
            await function()
        finally:
            with self._lock:
                self._running = None
            over.set_result(None)


class Exits:
    """The exits that nobody has taken yet, the oldest first. Used on one event loop."""

    def __init__(self) -> None:
        self._untaken: deque[ReplicaExit] = deque()
        self._changed = anyio.Event()
        self._stops = 0

    def put(self, gone: ReplicaExit) -> None:
        """Add one; whoever waits takes it."""
        self._untaken.append(gone)
        self._wake()

    def stop(self) -> None:
        """Forget all, and send away whoever waits."""
        self._untaken.clear()
        self._stops += 1
        self._wake()

    async def take(self) -> ReplicaExit:
        """Wait for one, and take it.

        Raises:
            ProviderError: The provider was stopped meanwhile.
        """
        stops = self._stops
        while not self._untaken:
            await self._changed.wait()
            if self._stops != stops:
                raise ProviderError("the provider was stopped: no replica can end")
        return self._untaken.popleft()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


async def side_by_side(functions: Iterable[Callable[[], Awaitable[Any]]], all_or_none: bool) -> None:
    """Run functions at the same time, and raise the first error as itself.

    Args:
        functions: What to run.
        all_or_none: Whether the first that fails cancels the others; otherwise all come to their end.
    """
    failures: list[Exception] = []

    async def run(function: Callable[[], Awaitable[Any]], scope: anyio.CancelScope) -> None:
        try:
            await function()
        except Exception as error:
            failures.append(error)
            if all_or_none:
                scope.cancel()

    async with anyio.create_task_group() as group:
        for function in functions:
            group.start_soon(run, function, group.cancel_scope)
    if failures:
        raise failures[0]
