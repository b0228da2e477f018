"""How many replicas may be there and start, at what rate: of one pool, or of several that share an engine.

No clock, socket or task: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable

from openenv_trl.errors import ConfigurationError


class StartLimit:
    """Counts replicas and their starts against limits; pools that share one share its limits.

    A pool that may start none although it needs one lays a claim. Pools with replicas that they do not need give one
    up for each claim, without waiting until they have been idle for long; for a pool that has none at all, the one
    with the most gives one up also where it needs it.

    Args:
        max_replicas: Replicas that exist at most, those that start or stop included; None for no limit.
        max_starting: Replicas that start at the same time at most.
        starts_per_second: Starts in a second at most, evenly spaced.

    Raises:
        ConfigurationError: A limit is not positive.

    Example:
        >>> shared = StartLimit(max_replicas=32, starts_per_second=4)
        >>> chess = ReplicaPool(chess_provider, connect, settings, shared=shared)
        >>> cards = ReplicaPool(cards_provider, connect, settings, shared=shared)
    """

    def __init__(
        self,
        *,
        max_replicas: int | None = None,
        max_starting: int | None = None,
        starts_per_second: float | None = None,
    ) -> None:
        given = {"max_replicas": max_replicas, "max_starting": max_starting, "starts_per_second": starts_per_second}
        for name, value in given.items():
            if value is not None and (value < 0 or (value == 0 and name != "max_replicas")):
                raise ConfigurationError(f"{name}={value}; it must be positive, or None for no limit")
        self.max_replicas = float("inf") if max_replicas is None else max_replicas
        self.max_starting = float("inf") if max_starting is None else max_starting
        self.spacing_s = 0.0 if starts_per_second is None else 1.0 / starts_per_second
        self.existing = 0
        """Replicas that start, run or stop."""
        self.starting = 0
        self._next_at = float("-inf")
        self._held: dict[object, int] = {}
        self._claims: dict[object, bool] = {}
        self._yielding = 0
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever a pool may have something to decide because of another."""
        self._listeners.append(listener)

    def unsubscribe(self, pool: object, listener: Callable[[], None]) -> None:
        """A pool has ended: its claim is void."""
        self._listeners.remove(listener)
        self.unclaim(pool)
        self._tell()

    def may_start_at(self, now: float) -> float:
        """When one more may be started; infinity where it takes an event."""
        if self.existing >= self.max_replicas or self.starting >= self.max_starting:
            return float("inf")
        return max(now, self._next_at)

    def started(self, pool: object, now: float) -> None:
        """A start has begun."""
        self.starting += 1
        self.exists(pool)
        self._next_at = now + self.spacing_s

    def exists(self, pool: object) -> None:
        """A replica is there that this did not start."""
        self.existing += 1
        self._held[pool] = self._held.get(pool, 0) + 1

    def start_ended(self) -> None:
        """A start has ended, well or badly."""
        self.starting -= 1
        self._tell()

    def gone(self, pool: object, *, yielded: bool = False) -> None:
        """A replica is gone; ``yielded`` where it was given up for another pool."""
        self.existing -= 1
        self._held[pool] -= 1
        self._yielding -= yielded
        self._tell()

    # One pool for another.

    def claim(self, pool: object, *, has_none: bool) -> None:
        """A pool needs a replica, and may start none since there are too many."""
        if self._claims.get(pool) != has_none:
            self._claims[pool] = has_none
            self._tell()

    def unclaim(self, pool: object) -> None:
        """A pool needs no replica, or has got it."""
        if self._claims.pop(pool, None) is not None:
            self._tell()

    def comes_after(self, pool: object) -> bool:
        """Whether a pool is to leave the next start to another one, which has no replica while this one has."""
        if self._held.get(pool, 0) == 0:
            return False
        return any(has_none for each, has_none in self._claims.items() if each is not pool)

    def owed(self, pool: object) -> int:
        """How many replicas others need that nobody has given up yet."""
        others = sum(each is not pool for each in self._claims)
        return max(0, others - self._yielding)

    def owes_one_in_use(self, pool: object) -> bool:
        """Whether a pool is to give up a replica that it needs: another has none, and none has more than this one."""
        destitute = any(has_none for each, has_none in self._claims.items() if each is not pool)
        return destitute and self.owed(pool) > 0 and self._held.get(pool, 0) == max(self._held.values(), default=0)

    def yields(self) -> None:
        """A replica is given up for another pool."""
        self._yielding += 1

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()
