"""Where an application's long-lived tasks run: one task group, open for as long as the application is.

A dialogue or a call can outlive the connection that began it, so it cannot live in that connection's own task group.
Where no lifespan runs (an application mounted in another), the group is opened by the first task that needs it and
stays open with the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

logger = logging.getLogger("openenv_trl.server")


class Nursery:
    """Starts tasks that end with the application. A task that raises is logged and troubles no other."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._loose: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold the group open; at the end its tasks are cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                group.cancel_scope.cancel()

    def start(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run the coroutine function in a task of its own."""
        if self._group is not None:
            self._group.start_soon(_guarded, function, args)
            return
        # No lifespan runs here: the set holds the task, which the event loop alone would not.
        task = asyncio.get_running_loop().create_task(_guarded(function, args))
        self._loose.add(task)
        task.add_done_callback(self._loose.discard)


async def _guarded(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
    try:
        await function(*args)
    except Exception:  # boundary: one dialogue's fault must not end the others
        logger.exception("A task of the server failed")
