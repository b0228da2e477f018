"""Where an application's long-lived tasks run.

A dialogue or a call can outlive the connection that began it, so it cannot live in that connection's own task group.
Nor can one group hold all of them: a group never ends before its last task, and a task that waits for a blocked thread
may never end. So the tasks are held one by one, cancelled together when the application stops, and left after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

logger = logging.getLogger("openenv_trl.server")

_PATIENCE_S = 1.0  # with tasks that were cancelled


class Nursery:
    """Starts tasks that end with the application. A task that raises is logged and troubles no other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """End the tasks when the block ends."""
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_PATIENCE_S)

    def start(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run the coroutine function in a task of its own."""
        task = asyncio.get_running_loop().create_task(_guarded(function, args))
        self._tasks.add(task)  # the event loop alone would not keep it alive
        task.add_done_callback(self._tasks.discard)


async def _guarded(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
    try:
        await function(*args)
    except Exception:  # boundary: one dialogue's fault must not end the others
        logger.exception("A task of the server failed")
