"""How late the event loop runs: the first sign of a hook that blocks it, or of more work than one core can do.

A timer is set and the time past its due moment is the lag: what every session's reply waited at that moment.
"""

from __future__ import annotations

import time

import anyio

from openenv_trl.server.metrics import Seconds

INTERVAL_S = 0.25
"""Between two looks at the clock; a stall that is shorter may go unseen."""

WINDOW_S = 60.0
"""How long the highest lag is remembered: at least once, at most twice this."""


class LoopLag:
    """The lags seen so far. Pure: times are given.

    Attributes:
        seconds: All of them.
    """

    def __init__(self) -> None:
        self.seconds = Seconds()
        self._window = 0.0
        self._highest = 0.0
        self._highest_before = 0.0

    def add(self, lag_s: float, now: float) -> None:
        """Record one lag."""
        self._turn(now)
        lag_s = max(0.0, lag_s)
        self.seconds.add(lag_s)
        self._highest = max(self._highest, lag_s)

    def highest(self, now: float) -> float:
        """Return the highest lag of the last minute or two."""
        self._turn(now)
        return max(self._highest, self._highest_before)

    def _turn(self, now: float) -> None:
        passed = now - self._window
        if passed < WINDOW_S:
            return
        self._highest_before = self._highest if passed < 2 * WINDOW_S else 0.0
        self._highest = 0.0
        self._window = now


async def measure_loop_lag(lag: LoopLag) -> None:
    """Record lags until cancelled."""
    while True:
        due = time.monotonic() + INTERVAL_S
        await anyio.sleep(INTERVAL_S)
        now = time.monotonic()
        lag.add(now - due, now)
