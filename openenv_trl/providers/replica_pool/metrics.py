"""A pool of replicas in numbers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields

from openenv_trl.providers.pool_decisions import PoolMetrics

# So many of the last waits are kept; the percentiles are over these.
_KEPT = 2048


@dataclass(frozen=True)
class ReplicaPoolMetrics(PoolMetrics):
    """A pool's counters since it was opened, and its present numbers. ``idle`` and ``in_use`` count sessions."""

    replicas_starting: int
    replicas_ready: int
    """Replicas and remote servers that sessions are opened on."""
    replicas_busy: int
    """Those of them with a session in use."""
    replicas_idle: int
    """Those of them without."""
    replicas_draining: int
    """Replicas that get no new sessions, and go when their last one is over; those that stop included."""
    servers_away: int
    """Servers that were given by their address, and do not answer."""
    starts: int
    start_failures: int
    deaths: int
    """Replicas that ended by themselves, or answered no health check."""
    start_s_p50: float
    """Seconds from asking for a replica until it was ready: the median of the last starts, 0 before the first."""
    start_s_max: float
    acquire_s_p50: float
    """Seconds that callers waited for their session: the median of the last 2048."""
    acquire_s_p95: float
    acquire_s_max: float
    utilisation: float
    """Sessions in use, as a part of those that the ready servers allow: the average since the pool was opened."""

    def numbers(self, prefix: str = "pool/") -> dict[str, float]:
        """All of them by name, for a logger.

        Args:
            prefix: What comes before each name.

        Example:
            >>> trainer.log(pool.metrics().numbers())  # pool/waiting, pool/replicas_ready, ...
        """
        return {f"{prefix}{field.name}": float(getattr(self, field.name)) for field in fields(self)}


class Reservoir:
    """The last so many of a series of figures."""

    def __init__(self, size: int = _KEPT) -> None:
        self._figures: deque[float] = deque(maxlen=size)

    def add(self, figure: float) -> None:
        """One more."""
        self._figures.append(figure)

    def percentiles(self, parts: Iterable[float]) -> list[float]:
        """The figures below which such parts of all are; 0.0 where there is none.

        Args:
            parts: From 0 to 1: 0.5 for the median, 1 for the largest.
        """
        ordered = sorted(self._figures)
        if not ordered:
            return [0.0 for _ in parts]
        return [ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in parts]


class Usage:
    """What part of the sessions is in use, on average over time."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._in_use = self._capacity = 0
        self._used_s = self._offered_s = 0.0

    def note(self, in_use: int, capacity: int, now: float) -> None:
        """So many are in use from now on, of so many."""
        passed_s = now - self._at
        self._used_s += passed_s * self._in_use
        self._offered_s += passed_s * max(self._capacity, self._in_use)
        self._at, self._in_use, self._capacity = now, in_use, capacity

    @property
    def average(self) -> float:
        """From 0 to 1."""
        return self._used_s / self._offered_s if self._offered_s else 0.0
