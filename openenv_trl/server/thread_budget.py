"""How many threads blocking calls get at a time: few while calls are short, one for each while they are long.

A thousand short calls that come at once are done soonest by a few threads; a thousand calls that each wait for
something need a thousand. The budget watches how long calls take, and whether the threads are at work or only the event
loop is late. It owns no thread and no clock.
"""

from __future__ import annotations

AT_FIRST = 8
"""Threads for short calls. More of them only wait for each other in one interpreter."""
LONG_CALL_S = 0.005
"""Seconds from which on a call counts as long: a hundred times the hand-over to a thread."""
_WEIGHT = 0.2  # of the last call in the running average


class ThreadBudget:
    """The number of calls that may run at once.

    Args:
        most: The number that is never passed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._least = min(AT_FIRST, most)
        self._average_s = 0.0
        self.threads = self._least
        """Calls that may run at once now."""

    def call_waits(self, at_work: int | None = None) -> None:
        """A call finds no free thread: there may be more threads after this.

        Args:
            at_work: Threads that are inside a call at this moment; None where the call has not waited yet. Where all
                are, after a while, waiting on would not help.
        """
        if self._average_s >= LONG_CALL_S:
            self.threads = min(self._most, self.threads + 1)
        elif at_work is not None and at_work >= self.threads:
            self.threads = min(self._most, self.threads * 2)

    def calls_wait(self, waiting: int) -> None:
        """So many calls still find no thread, after others have returned."""
        if self._average_s >= LONG_CALL_S:
            self.threads = min(self._most, self.threads + waiting)

    def call_returned(self, seconds: float, running: int) -> None:
        """A call has returned, after so many seconds in its thread, with so many others still running."""
        self._average_s += _WEIGHT * (seconds - self._average_s)
        if self._average_s < LONG_CALL_S and running < self._least:
            self.threads = self._least
