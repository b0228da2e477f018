"""Callers of one session that wait for its running call to end: each in its turn, none overtaken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import anyio


class Turns:
    """The line behind one session's running call.

    Args:
        may_begin: Whether the session could take a call now.
    """

    __slots__ = ("_may_begin", "_waiting")

    def __init__(self, may_begin: Callable[[], bool]) -> None:
        self._may_begin = may_begin
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def wait(self, seconds: float | None) -> bool:
        """Wait for the turn, which is the caller's until it suspends. False where it did not come in that time."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        came = False
        try:
            with anyio.move_on_after(seconds):
                await turn
                came = True
        finally:
            self._waiting.remove(turn)
            if turn.done() and not turn.cancelled() and not (came and self._may_begin()):
                self.pass_on()  # it has no use for the turn that it was given
        return came

    def pass_on(self) -> None:
        """The session's call has ended, or the session: it is the next one's turn, if only to hear of it."""
        if self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)
