"""Coroutines of an environment whose class wants none of its code on the server's event loop: ``EXECUTION = "thread"``.

Each such environment has an event loop of its own, kept from call to call, so that what it opened in one call works in
the next. The loop runs in whichever thread is lent for the call; no thread waits for it in between.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


class OwnLoop:
    """The event loop of one environment; made when it is first needed."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """In a thread: call the function, and wait for what it returns where that is to be awaited."""
        value = function(*args, **kwargs)
        if not inspect.isawaitable(value):
            return value
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        # The thread is lent for this one call and has no event loop that this could be nested in.
        return self._loop.run_until_complete(_awaited(value))

    def close(self) -> None:
        """In a thread: let go of the event loop, after the environment's last call."""
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._loop = None


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
