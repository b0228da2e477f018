"""Sweeps in time: the thin shell of `Reaper`. A timer and no task, so that it works where no lifespan runs too."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from openenv_trl.server.reaper import Reaped, Reaper

_APART_S = 0.05  # two sweeps, at least


class Sweeper:
    """Has a reaper sweep whenever something is due.

    Args:
        reaper: The schedule.
        resting_since: When a session's last call ended; None while one runs or waits.
        reap: Ends a session that has rested too long.
    """

    def __init__(
        self, reaper: Reaper, resting_since: Callable[[str], float | None], reap: Callable[[Reaped], None]
    ) -> None:
        self._reaper = reaper
        self._resting_since = resting_since
        self._reap = reap
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None

    def plan(self) -> None:
        """The schedule may have changed: set the timer by it."""
        loop, at = asyncio.get_running_loop(), self._reaper.next_at
        if self._timer is not None:
            if loop is self._loop and self._at <= at:
                return
            self._timer.cancel()
            self._timer = None
        if at < math.inf:
            self._loop, self._at = loop, at
            self._timer = loop.call_later(max(_APART_S, at - time.monotonic()), self._sweep)

    def stop(self) -> None:
        """Sweep no more, until `plan` is called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        for reaped in self._reaper.sweep(time.monotonic(), self._resting_since):
            self._reap(reaped)
        self.plan()
