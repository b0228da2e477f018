"""What to do with a generation that failed: give it back as failed, try it again, or end.

One prompt that fails while others are answered is that prompt's trouble. When nothing is answered any more the server
is down: then every generation is tried again until one succeeds, and the worker ends if that takes too long.
"""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_DELAY_S = 5.0


@dataclass(frozen=True)
class GiveBack:
    """Others are answered: this generation failed alone."""


@dataclass(frozen=True)
class TryAgain:
    """Nothing is answered: try again after so many seconds."""

    delay_s: float


@dataclass(frozen=True)
class GiveUp:
    """Nothing has been answered for too long."""

    lasted_s: float


class OutageWatch:
    """Tells an outage from failures of single generations. Times are of one monotonic clock.

    Args:
        max_outage_s: How long an outage may last.
        first_delay_s: Seconds before the first new try; later ones wait longer, up to five seconds.
    """

    def __init__(self, *, max_outage_s: float, first_delay_s: float) -> None:
        self._max_outage_s = max_outage_s
        self._first_delay_s = first_delay_s
        self._succeeded_at: float | None = None
        self._failing_since: float | None = None

    def succeeded(self, now: float) -> None:
        """A generation was answered."""
        self._succeeded_at, self._failing_since = now, None

    def failed(self, began: float, now: float) -> GiveBack | TryAgain | GiveUp:
        """A generation failed: what to do with it.

        Args:
            began: When it was asked for first.
            now: The time.
        """
        if self._succeeded_at is not None and self._succeeded_at >= began:
            return GiveBack()
        if self._failing_since is None or began < self._failing_since:
            self._failing_since = began
        lasted = now - self._failing_since
        if lasted > self._max_outage_s:
            return GiveUp(lasted)
        return TryAgain(min(_LONGEST_DELAY_S, max(self._first_delay_s, lasted / 2)))
