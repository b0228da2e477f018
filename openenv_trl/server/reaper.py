"""When a session has rested too long: a pure schedule, with the time as an argument.

A session that a connection holds may rest for the idle timeout; one that none holds, for the detached timeout, counted
from its last call or from its connection's going, whichever came later. A session whose call runs or waits is never
reaped. Each session is looked at once for each of its timeouts, not at every sweep.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from openenv_trl.server.session import SessionEnd

_AGAIN_S = 1.0  # until a busy session that is to end is looked at again
_STALE_ENTRIES = 64  # of sessions that have ended, kept before they are cleared away


@dataclass(frozen=True, slots=True)
class Reaped:
    """A session that has rested too long.

    Attributes:
        session_id: The session.
        end: How it ends.
        because: Completes "Session ... is lost: ".
    """

    session_id: str
    end: SessionEnd
    because: str


class _Tenant:
    """What is known of one session: who holds it, and when it is looked at again."""

    __slots__ = ("detached_at", "held", "is_reaped", "look_at", "timeout_s", "until")

    def __init__(self, now: float, timeout_s: float) -> None:
        self.held = False
        self.is_reaped = False
        self.detached_at = now
        self.timeout_s = timeout_s
        self.until = math.inf
        self.look_at = math.inf


class Reaper:
    """The schedule.

    Args:
        idle_timeout_s: For sessions that a connection holds; None for ever.
        detached_timeout_s: For others; None for ever.
    """

    def __init__(self, idle_timeout_s: float | None, detached_timeout_s: float | None) -> None:
        self._idle_timeout_s = math.inf if idle_timeout_s is None else idle_timeout_s
        self._detached_timeout_s = math.inf if detached_timeout_s is None else detached_timeout_s
        self._tenants: dict[str, _Tenant] = {}
        self._schedule: list[tuple[float, str]] = []

    @property
    def next_at(self) -> float:
        """When to sweep next; infinity where nothing is due."""
        return self._schedule[0][0] if self._schedule else math.inf

    def add(self, session_id: str, now: float, *, held: bool) -> None:
        """A session begins."""
        tenant = self._tenants[session_id] = _Tenant(now, self._detached_timeout_s)
        tenant.held = held
        self._look(session_id, tenant, now + self._patience(tenant))

    def is_held(self, session_id: str) -> bool:
        """Whether a connection holds the session."""
        return self._tenants[session_id].held

    def hold(self, session_id: str) -> None:
        """A connection takes the session."""
        self._tenants[session_id].held = True

    def release(self, session_id: str, now: float, timeout_s: float | None = None) -> None:
        """The connection is gone; the session lives on for the timeout, or the detached timeout if None."""
        tenant = self._tenants[session_id]
        tenant.held = False
        tenant.detached_at = now
        tenant.timeout_s = self._detached_timeout_s if timeout_s is None else timeout_s
        self._look(session_id, tenant, now + tenant.timeout_s)

    def dismiss(self, session_id: str, at: float) -> None:
        """The session shall end at that time at the latest, unless a call runs or waits then."""
        tenant = self._tenants[session_id]
        tenant.until = min(tenant.until, at)
        self._look(session_id, tenant, at)

    def keep(self, session_id: str) -> None:
        """Take a dismissal back."""
        self._tenants[session_id].until = math.inf

    def forget(self, session_id: str) -> None:
        """The session has ended."""
        self._tenants.pop(session_id, None)
        if len(self._schedule) > 2 * len(self._tenants) + _STALE_ENTRIES:
            self._schedule = [(t.look_at, name) for name, t in self._tenants.items() if t.look_at < math.inf]
            heapq.heapify(self._schedule)

    def sweep(self, now: float, resting_since: Callable[[str], float | None]) -> list[Reaped]:
        """Return the sessions to end now; each is told of once.

        Args:
            now: The time.
            resting_since: When a session's last call ended; None while one runs or waits.
        """
        reaped: list[Reaped] = []
        while self._schedule and self._schedule[0][0] <= now:
            look_at, session_id = heapq.heappop(self._schedule)
            tenant = self._tenants.get(session_id)
            if tenant is None or tenant.look_at != look_at:
                continue  # ended, or to be looked at sooner
            since = resting_since(session_id)
            tenant.look_at = math.inf
            if since is None:
                self._look(session_id, tenant, now + (_AGAIN_S if tenant.until <= now else self._patience(tenant)))
                continue
            due = self._due(tenant, since)
            if due > now:
                self._look(session_id, tenant, due)
                continue
            tenant.is_reaped = True  # and known until it has ended: its connection may come and go meanwhile
            reaped.append(self._end(session_id, tenant, now, since))
        return reaped

    def _due(self, tenant: _Tenant, since: float) -> float:
        begin = since if tenant.held else max(since, tenant.detached_at)
        return min(begin + self._patience(tenant), tenant.until)

    def _patience(self, tenant: _Tenant) -> float:
        return self._idle_timeout_s if tenant.held else tenant.timeout_s

    def _end(self, session_id: str, tenant: _Tenant, now: float, since: float) -> Reaped:
        if tenant.until <= now:
            return Reaped(session_id, SessionEnd.DRAINED, "the server is shutting down")
        seconds = f"{now - since:.0f} s"
        if tenant.held:
            text = f"no call came for {seconds} (idle_timeout_s={self._idle_timeout_s:g})"
            return Reaped(session_id, SessionEnd.IDLE, text)
        text = f"no connection held it and no call came for {seconds} (its timeout is {tenant.timeout_s:g} s)"
        return Reaped(session_id, SessionEnd.DETACHED, text)

    def _look(self, session_id: str, tenant: _Tenant, at: float) -> None:
        if at < tenant.look_at and not tenant.is_reaped:
            tenant.look_at = at
            heapq.heappush(self._schedule, (at, session_id))
