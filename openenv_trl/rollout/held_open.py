"""A context manager that one task opens and another closes.

A pool that starts servers has tasks of its own, in a task group: such a block must be left by the task that entered it.
A trainer's batches are played by one task each, and whoever closes the rollout is yet another.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class HeldOpen(Generic[T]):
    """An async context manager, entered and left by a task of its own.

    What is cancelled is the waiting for it: a cancelled entry leaves it first. Errors of its entry and its exit go to
    whoever waits. Where the event loop ends without an exit, the loop's end leaves it.

    Args:
        manager: What to hold open.

    Example:
        >>> pool = await stack.enter_async_context(HeldOpen(open_pool(servers, sessions_per_server=8)))
    """

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._close = anyio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> T:
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Not a task group's: the one that is open here belongs to the task that ends long before this one. It is kept
        # and waited for below.
        self._task = asyncio.create_task(self._hold(entered))
        try:
            return await asyncio.shield(entered)
        except asyncio.CancelledError:
            self._task.cancel()  # does nothing that matters where it is open already: it is left all the same
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._task])
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._leave()

    async def _hold(self, entered: asyncio.Future[T]) -> None:
        try:
            async with self._manager as held:
                if not entered.cancelled():
                    entered.set_result(held)
                await self._close.wait()
        except asyncio.CancelledError:
            entered.cancel()
            raise
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    async def _leave(self) -> None:
        self._close.set()
        task, self._task = self._task, None
        if task is None:
            return
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
