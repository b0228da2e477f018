"""How long a batch that could go waits for more: a fixed time, or as long as waiting is expected to pay.

To wait ``w`` seconds costs each of ``r`` ready episodes ``w``; it saves each of ``a`` episodes that come meanwhile the
rest of a generation, ``G - w``, which they would otherwise wait for. So waiting pays while ``a (G - w) > r w``. When
the absent come is guessed from how long episodes have been away lately (the empirical distribution, given how long each
has been away by now, with a tail beyond its longest); one that is away for longer than that is no longer expected.

That a generation takes ``G`` seconds whatever the size of its batch holds where decoding is bound by memory, as it is
for all but very large batches. No clock and no task here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from typing import Protocol

_ABSENCES_KEPT = 128
_TAIL = (0.1, 0.25, 0.5, 1.0)  # of the distance from the median to the longest
_TIMES_TRIED = 16  # how finely the best time to wait for is looked for, within the longest absence
_FORGETS = 0.8  # weight of what was before, at each generation


class WindowSettings(Protocol):
    """What of `BatchSettings` is looked at."""

    @property
    def batch_window_s(self) -> float:
        """The fixed window."""
        ...

    @property
    def adaptive_window(self) -> bool:
        """Whether it adapts."""
        ...

    @property
    def max_window_s(self) -> float:
        """The most that it adapts to."""
        ...


class BatchWindow:
    """Measures absences and generations, and says until when a batch waits.

    An episode is absent from when it begins or is answered until it asks again or ends.
    """

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._absent_since: dict[int, float] = {}
        self._absences: deque[float] = deque(maxlen=_ABSENCES_KEPT)
        self._sorted: list[float] | None = None
        self._generation_s: float | None = None
        self._generation_ended = float("-inf")

    def left(self, episode: int, now: float) -> None:
        """An episode is absent from now on."""
        self._absent_since[episode] = now

    def came(self, episode: int, now: float) -> None:
        """It is ready; episodes that are not absent are ignored."""
        since = self._absent_since.pop(episode, None)
        if since is not None:
            self._absences.append(now - since)
            self._sorted = None

    def ended(self, episode: int) -> None:
        """It comes no more."""
        self._absent_since.pop(episode, None)

    def generation_ended(self, seconds: float, now: float) -> None:
        """A generation has ended that took so many seconds."""
        before = self._generation_s
        self._generation_s = seconds if before is None else before * _FORGETS + seconds * (1 - _FORGETS)
        self._generation_ended = now

    def due(self, ready: int, first_ready: float, now: float) -> float:
        """When a batch goes that is neither full nor has all live episodes in it; a time that has passed means now.

        Args:
            ready: Episodes in it.
            first_ready: When the first of them became ready.
            now: The time.
        """
        settings = self._settings
        if not settings.adaptive_window or self._generation_s is None or not self._absences:
            return first_ready + settings.batch_window_s
        best = self._best_time(ready, self._generation_s, now)
        return min(best, max(first_ready, self._generation_ended) + settings.max_window_s)

    def _best_time(self, ready: int, generation_s: float, now: float) -> float:
        """Until when waiting is expected to pay most; now, where it does not."""
        if self._sorted is None:
            self._sorted = _with_tail(sorted(self._absences))
        absences, longest = self._sorted, self._sorted[-1]
        step = longest / _TIMES_TRIED
        if not step:
            return now
        # Those that left at nearly the same time are looked at together.
        ages = Counter(int((now - since) / step) for since in self._absent_since.values())
        best, best_gain = now, 0.0
        for tries in range(1, _TIMES_TRIED + 1):
            wait = tries * step
            coming = 0.0
            for steps_away, count in ages.items():
                still_away = len(absences) - bisect_right(absences, steps_away * step)
                if still_away:
                    back = bisect_right(absences, (steps_away + tries) * step) - (len(absences) - still_away)
                    coming += count * back / still_away
            gain = coming * (generation_s - wait) - ready * wait
            if gain > best_gain:
                best, best_gain = now + wait, gain
        return best


def _with_tail(absences: list[float]) -> list[float]:
    """Sorted absences with a few that are a little longer than all: the longest so far is seldom the longest ever."""
    longest = absences[-1]
    spread = max(longest - absences[len(absences) // 2], 0.01 * longest)
    return [*absences, *(longest + spread * share for share in _TAIL)]
