"""What a server counts: sessions, calls and how long they took. Plain numbers, read when somebody asks.

Pure: no clock, no task, no lock (everything is counted on the event loop). A call costs under a microsecond to count,
so nothing here is a prometheus object: `metrics_page` makes those out of the numbers when ``/metrics`` is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

BOUNDS_S = (25e-6, 1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
"""Upper ends of the buckets for seconds: from a hook on the event loop to a step that compiles something."""


class Seconds:
    """A histogram of seconds.

    Attributes:
        counts: How many fell into each bucket; the last has no upper end.
        total: Their sum.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the buckets as prometheus wants them: upper end and the number up to it."""
        ends = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
        so_far, buckets = 0, list[tuple[str, float]]()
        for end, count in zip(ends, self.counts, strict=True):
            so_far += count
            buckets.append((end, float(so_far)))
        return buckets


class ServerMetrics:
    """The numbers of one server process.

    Attributes:
        opened: Sessions opened, by transport ("ws", "http", "mcp", "native", ...).
        closed: Sessions ended, by reason ("closed", "lost", "deadline", "reaped", ...).
        refused: Sessions not opened, by reason ("capacity", "factory", "draining").
        waiting: Callers that wait for a slot now.
        calls: How long calls took, by kind ("reset", "step", "state", "tool") and outcome ("ok" or what went wrong).
        abandoned: Threads left to a hook that did not return by its deadline.
        reaped: Sessions ended because nobody used them.
        resumed: Sessions taken up again after their connection broke.
        late_replies: Results that came after their caller had given up.
    """

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.waiting = 0
        self.calls: dict[tuple[str, str], Seconds] = {}
        self.abandoned = 0
        self.reaped = 0
        self.resumed = 0
        self.late_replies = 0

    def session_opened(self, transport: str) -> None:
        """A session's environment is built."""
        self.opened[transport] += 1

    def session_closed(self, reason: str) -> None:
        """A session ended."""
        self.closed[reason] += 1

    def session_refused(self, reason: str) -> None:
        """A session could not be opened."""
        self.refused[reason] += 1

    def session_waits(self) -> None:
        """A caller begins to wait for a slot."""
        self.waiting += 1

    def session_wait_ended(self) -> None:
        """A caller no longer waits: it has its slot, or gave up."""
        self.waiting -= 1

    def call_finished(self, kind: str, outcome: str, seconds: float) -> None:
        """A call on an environment is over.

        Args:
            kind: What was called: one of a few words, never a tool's name.
            outcome: "ok", or one of a few words for what went wrong.
            seconds: How long it took.
        """
        key = (kind, outcome)
        record = self.calls.get(key)
        if record is None:
            record = self.calls[key] = Seconds()
        record.counts[bisect_left(BOUNDS_S, seconds)] += 1  # `Seconds.add`, without the cost of calling it
        record.total += seconds

    def call_abandoned(self) -> None:
        """A thread was left to a hook that did not return."""
        self.abandoned += 1

    def session_reaped(self) -> None:
        """A session was ended because nobody used it."""
        self.reaped += 1

    def session_resumed(self) -> None:
        """A client took its session up again."""
        self.resumed += 1

    def late_reply(self) -> None:
        """A result came that nobody waits for any more."""
        self.late_replies += 1
