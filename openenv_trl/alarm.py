"""A deadline that is set for each call and hardly ever reached, at next to no cost.

The event loop's timer is set once and left alone while later deadlines come and go; when it goes off it looks at the
deadline of that moment, and sets itself anew where that is still to come.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable


class Alarm:
    """One deadline at a time.

    Args:
        ring: Called on the event loop when the deadline has passed.
    """

    __slots__ = ("_deadline", "_ring", "_timer", "_timer_at")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def set(self, deadline: float) -> None:
        """Ring at that time of the monotonic clock, unless it is cleared before."""
        self._deadline = deadline
        if deadline < self._timer_at:
            self._wind(deadline)

    def clear(self) -> None:
        """There is no deadline any more."""
        self._deadline = math.inf

    def stop(self) -> None:
        """There is no deadline any more, and no timer that would keep its owner alive."""
        self._deadline = self._timer_at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        # The event loop's clock is not always this one (uvloop's counts whole milliseconds).
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - time.monotonic()), self._look)

    def _look(self) -> None:
        self._timer, self._timer_at = None, math.inf
        deadline = self._deadline
        if deadline == math.inf:
            return
        if deadline > time.monotonic():
            self._wind(deadline)
            return
        self._deadline = math.inf
        self._ring()
