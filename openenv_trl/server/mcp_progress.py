"""The progress of one tool call, from the environment (in whatever thread) to the client that asked for it.

A call that says nothing itself is reported with the seconds that it has taken, so that a client which waits longer for
a call that gets on does so. The numbers always grow, as the protocol wants it: where the environment begins to report
after such seconds, its own numbers count from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable

import anyio

Report = Callable[[float, "float | None", "str | None"], Awaitable[None]]

_MOST_WAITING = 256  # reports that the client has not taken yet; then the oldest are dropped


class ProgressReports:
    """The reports of one call.

    Args:
        loop: Where they are sent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._waiting: deque[tuple[float, float | None, str | None]] = deque(maxlen=_MOST_WAITING)
        self._changed = anyio.Event()
        self._ended = False
        self._spoken = False

    def put(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report from the environment. Does not block, in whatever thread."""
        if threading.get_ident() == self._thread:
            self._put(progress, total, message)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._put, progress, total, message)

    def end(self) -> None:
        """The call is over: `send_all` returns once it has sent the rest."""
        self._ended = True
        self._changed.set()

    async def send_all(self, report: Report, interval_s: float) -> None:
        """Send reports until the call is over.

        Args:
            report: Sends one.
            interval_s: After how long a silent call is reported.
        """
        begin, offset = time.monotonic(), 0.0
        while not self._ended or self._waiting:
            with anyio.move_on_after(interval_s):
                await self._changed.wait()
            self._changed = anyio.Event()
            if not self._spoken and not self._ended:
                offset = time.monotonic() - begin
                await report(offset, None, None)
            while self._waiting:
                progress, total, message = self._waiting.popleft()
                await report(offset + progress, None if total is None else offset + total, message)

    def _put(self, progress: float, total: float | None, message: str | None) -> None:
        self._spoken = True
        self._waiting.append((progress, total, message))
        self._changed.set()
