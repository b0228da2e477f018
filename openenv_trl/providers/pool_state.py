"""Who gets which session, decided: the pool as a pure object. Events go in, decisions come out.

Invariants:

- A server never holds more sessions (in use, idle, connecting or closing) than its limit.
- A session is in exactly one place: with one caller, idle, closing, or gone.
- Callers are served in the order in which they asked. One whose own connect is under way is passed over
  while others wait, and keeps its place should the connect fail.
- Each caller is told in the end: a session, or an error. A server without capacity is never an error by
  itself: the caller waits until its deadline.
- A server that was retired or dropped gets no further session, and none of its sessions is lent again.

No clock, socket or task: the time is an argument, sessions are numbers. ``pool.py`` carries the decisions
out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openenv_trl.errors import ConfigurationError, OpenEnvError, SessionStateError
from openenv_trl.providers.pool_decisions import Abandon, Close, Connect, Decision, Grant, Outlook, PoolMetrics, Refuse
from openenv_trl.providers.pool_errors import closed_error, late_error, one_more
from openenv_trl.providers.pool_server import BackOff, ServerSlots, no_chance


@dataclass
class _Waiter:
    since: float
    deadline: float
    attempt: int | None = None


class PoolState:
    """Servers, sessions, and the callers that wait.

    Args:
        urls: The servers at first; there may be none, and callers then wait for one.
        sessions_per_server: The limit of each.
        server_patience_s: Seconds for which no server at all may answer before callers are told, deadline or not.
        refused_back_off: The pause after a refusal for lack of capacity.
        failed_back_off: The pause for which a server that does not answer is set aside.
        chance: Spreads the pauses, as far as their jitter allows: gives numbers from 0 to 1.
    """

    def __init__(
        self,
        urls: Sequence[str],
        sessions_per_server: int,
        *,
        server_patience_s: float = 30.0,
        refused_back_off: BackOff = BackOff(),
        failed_back_off: BackOff = BackOff(),
        chance: Callable[[], float] = no_chance,
    ) -> None:
        self._back_offs = (refused_back_off, failed_back_off)
        self._chance = chance
        self.servers = [self._slots(url, sessions_per_server) for url in urls]
        self.leaving: list[ServerSlots] = []
        """Servers that were retired while sessions of theirs were open."""
        self.upsets = 0
        """How often a server refused, failed, or did no more: what is known of the servers' capacity has changed."""
        self.is_closed = False
        self.outlook = Outlook()
        self._patience_s = server_patience_s
        self._waiters: dict[int, _Waiter] = {}
        self._queue: list[int] = []
        """Tickets without an attempt: a heap, from which those that left are dropped late."""
        self._in_use: dict[int, ServerSlots] = {}
        self._closing: dict[int, ServerSlots] = {}
        self._attempts: dict[int, tuple[int, ServerSlots]] = {}
        self._last_id = 0
        self._down_since: float | None = None
        self._opened = self._reused = self._refused = self._failed = self._closed = 0

    # Events. Each returns decisions.

    def request(self, now: float, deadline: float) -> tuple[int, list[Decision]]:
        """A caller asks for a session; returns its ticket too."""
        ticket = self._new_id()
        if self.is_closed:
            return ticket, [Refuse(ticket, closed_error())]
        self._waiters[ticket] = _Waiter(now, deadline)
        heapq.heappush(self._queue, ticket)
        return ticket, self._dispatch(now)

    def cancel(self, ticket: int, now: float) -> list[Decision]:
        """The caller does not wait any more. An attempt of its own is reported separately."""
        self._waiters.pop(ticket, None)
        return self._dispatch(now)

    def release(self, session: int, now: float, healthy: bool, *, keep: bool = True) -> list[Decision]:
        """A caller gives its session back.

        One that is not healthy is closed, and with it its server's idle sessions: nobody watches those, so when the
        server was restarted they are lost too, and each would fail the next caller. One that is healthy, and not to be
        kept, is closed alone.

        Raises:
            SessionStateError: The session is with no caller.
        """
        server = self._in_use.pop(session, None)
        if server is None:
            if self.is_closed:
                return []
            raise SessionStateError("this lease was released before")
        server.in_use -= 1
        if healthy and not server.retired:
            if not keep:
                return [self._close(session, server), *self._dispatch(now)]
            server.idle.append(session)
            return self._dispatch(now)
        return [self._close(session, server), *self._close_idle(server), *self._dispatch(now)]

    def closed(self, session: int, now: float) -> list[Decision]:
        """A session that was to be closed is closed."""
        server = self._closing.pop(session)
        server.closing -= 1
        self._closed += 1
        self._forget_if_left(server)
        return self._dispatch(now)

    def connected(self, attempt: int, now: float) -> tuple[int, list[Decision]]:
        """An attempt brought a session; returns its number too."""
        ticket, server = self._attempts[attempt]
        session = self._new_id()
        self._opened += 1
        if self.is_closed or server.retired:
            self._end_attempt(attempt)
            server.connecting -= 1
            return session, [self._close(session, server), *self._dispatch(now)]
        del self._attempts[attempt]
        decisions: list[Decision] = []
        waiter = self._waiters.get(ticket)
        if waiter is not None and waiter.attempt == attempt:
            decisions.append(self._grant(ticket, session, server))
        else:
            server.idle.append(session)
        self.upsets += bool(server.failures or server.refusals)
        server.note_connected(now)
        return session, [*decisions, *self._dispatch(now)]

    def refused(self, attempt: int, now: float) -> list[Decision]:
        """The server of the attempt has no capacity."""
        self._refused += 1
        self.upsets += 1
        server = self._end_attempt(attempt)
        server.note_refused(now)
        self._forget_if_left(server)
        return self.tick(now)

    def failed(self, attempt: int, now: float, reason: str) -> list[Decision]:
        """The server of the attempt did not answer. Its idle sessions are taken for dead."""
        self._failed += 1
        self.upsets += 1
        server = self._end_attempt(attempt)
        server.note_failed(now, reason)
        self._forget_if_left(server)
        return [*self._close_idle(server), *self.tick(now)]

    def abandoned(self, attempt: int, now: float, unanswered: str = "") -> list[Decision]:
        """The attempt ended without a session, since its caller does not need it, or (``unanswered``) cannot wait."""
        server = self._end_attempt(attempt)
        server.note_abandoned(unanswered)
        self._forget_if_left(server)
        return self.tick(now)

    def tick(self, now: float) -> list[Decision]:
        """Time has passed."""
        refusals: list[Decision] = []
        for ticket, waiter in list(self._waiters.items()):
            if now >= min(waiter.deadline, self._out_of_patience_at(waiter)):
                refusals += self._refuse(ticket, waiter, self._late_error(waiter, now))
        return [*refusals, *self._dispatch(now)]

    def close(self, now: float) -> list[Decision]:
        """The pool ends: every caller is told, every session closed, also those in use."""
        self.is_closed = True
        decisions: list[Decision] = []
        for ticket, waiter in list(self._waiters.items()):
            decisions += self._refuse(ticket, waiter, closed_error())
        for server in self.servers:
            decisions += self._close_idle(server)
        for session, server in self._in_use.items():
            server.in_use -= 1
            decisions.append(self._close(session, server))
        self._in_use.clear()
        return decisions

    # Servers that come and go.

    def add_server(self, url: str, limit: int, now: float) -> list[Decision]:
        """There is one more server, or one that was retired is not after all.

        Raises:
            ConfigurationError: It is there already.
        """
        if any(server.url == url for server in self.servers):
            raise ConfigurationError(f"the pool has the server {url} already")
        server = next((each for each in self.leaving if each.url == url), None)
        if server is None:
            server = self._slots(url, limit)
        else:
            self.leaving.remove(server)
            server.retired, server.limit = False, limit
        self.servers.append(server)
        return self._dispatch(now)

    def retire_server(self, url: str, now: float) -> list[Decision]:
        """The server gets no new sessions; those in use are closed when they are released. It may be gone already."""
        server = next((each for each in self.servers if each.url == url), None)
        if server is None:
            return []
        self.servers.remove(server)
        server.retired = True
        self.leaving.append(server)
        decisions = self._close_idle(server)
        self._forget_if_left(server)
        return [*decisions, *self._dispatch(now)]

    def drop_server(self, url: str, now: float) -> list[Decision]:
        """The server is dead: its idle sessions are closed, attempts given up, and what was learned of it is forgotten.

        Sessions of it that are lent stay with their callers, and are closed when they are released.
        """
        decisions = self.retire_server(url, now)
        for server in [each for each in self.leaving if each.url == url]:
            self.leaving.remove(server)
            for ticket, of_server in self._attempts.values():
                if of_server is server:
                    decisions.append(Abandon(ticket))
        return decisions

    def set_outlook(self, outlook: Outlook, now: float) -> None:
        """Say whether more servers come."""
        self.outlook = outlook
        self._note_whether_down(now)

    def fail_waiters(self, error: OpenEnvError, now: float) -> list[Decision]:
        """Every caller that waits gets the error."""
        decisions: list[Decision] = []
        for ticket, waiter in list(self._waiters.items()):
            decisions += self._refuse(ticket, waiter, one_more(error))
        return [*decisions, *self._dispatch(now)]

    # What can be asked.

    @property
    def demand(self) -> int:
        """Sessions that callers have, or want now."""
        return len(self._in_use) + len(self._waiters)

    @property
    def lent(self) -> int:
        """Sessions that callers have."""
        return len(self._in_use)

    @property
    def queued(self) -> int:
        """Callers that have no session yet, and for whom none is being opened."""
        return sum(waiter.attempt is None for waiter in self._waiters.values())

    @property
    def queued_since(self) -> float | None:
        """Since when the next caller waits for whom not even an attempt is made; None where there is none."""
        head = self.head
        return None if head is None else self._waiters[head].since

    @property
    def head(self) -> int | None:
        """The caller that is next to be served, and minds the time for all."""
        while self._queue:
            waiter = self._waiters.get(self._queue[0])
            if waiter is not None and waiter.attempt is None:
                return self._queue[0]
            heapq.heappop(self._queue)
        return None

    @property
    def connecting(self) -> int:
        """Attempts whose end has not been reported."""
        return len(self._attempts)

    def wake_at(self, ticket: int, now: float) -> float:
        """When the caller is to feed a ``tick`` if nothing happens before; infinity for never."""
        waiter = self._waiters.get(ticket)
        if waiter is None:
            return now
        times = [waiter.deadline, self._out_of_patience_at(waiter)]
        if ticket == self.head:
            times += [server.may_connect_at(now) for server in self.servers]
        return min(times)

    def metrics(self) -> PoolMetrics:
        """The pool's numbers."""
        return PoolMetrics(
            opened=self._opened,
            reused=self._reused,
            refused=self._refused,
            failed=self._failed,
            closed=self._closed,
            in_use=len(self._in_use),
            idle=sum(len(server.idle) for server in self.servers),
            connecting=len(self._attempts),
            waiting=len(self._waiters),
        )

    # How decisions come about.

    def _dispatch(self, now: float) -> list[Decision]:
        """Serves the queue in order, as far as sessions and limits go."""
        decisions: list[Decision] = []
        while not self.is_closed and (ticket := self.head) is not None:
            server = min((s for s in self.servers if s.idle), key=lambda s: s.load, default=None)
            if server is not None:
                decisions += self._grant_idle(ticket, server)
                continue
            server = min((s for s in self.servers if s.may_connect(now)), key=lambda s: s.load, default=None)
            if server is None:
                break
            attempt = self._waiters[ticket].attempt = self._new_id()
            self._attempts[attempt] = (ticket, server)
            server.connecting += 1
            decisions.append(Connect(ticket, attempt, server.url))
        # Nobody waits for sessions that are left over, but for connects some may: the oldest need wait no longer.
        for server in self.servers:
            while server.idle and (connecting := self._connecting_tickets()):
                decisions += self._grant_idle(min(connecting), server)
        self._note_whether_down(now)
        return decisions

    def _connecting_tickets(self) -> list[int]:
        return [
            ticket
            for attempt, (ticket, _) in self._attempts.items()
            if ticket in self._waiters and self._waiters[ticket].attempt == attempt
        ]

    def _grant_idle(self, ticket: int, server: ServerSlots) -> list[Decision]:
        attempt = self._waiters[ticket].attempt
        self._reused += 1
        grant = self._grant(ticket, server.idle.pop(), server)
        return [grant] if attempt is None else [grant, Abandon(ticket)]

    def _grant(self, ticket: int, session: int, server: ServerSlots) -> Grant:
        del self._waiters[ticket]
        self._in_use[session] = server
        server.in_use += 1
        return Grant(ticket, session, server.url)

    def _close(self, session: int, server: ServerSlots) -> Close:
        server.closing += 1
        self._closing[session] = server
        return Close(session)

    def _close_idle(self, server: ServerSlots) -> list[Decision]:
        idle, server.idle = server.idle, []
        return [self._close(session, server) for session in idle]

    def _refuse(self, ticket: int, waiter: _Waiter, error: OpenEnvError) -> list[Decision]:
        del self._waiters[ticket]
        refuse = Refuse(ticket, error)
        return [refuse] if waiter.attempt is None else [refuse, Abandon(ticket)]

    def _end_attempt(self, attempt: int) -> ServerSlots:
        """Forgets the attempt; its caller goes back to its place in the queue."""
        ticket, server = self._attempts.pop(attempt)
        waiter = self._waiters.get(ticket)
        if waiter is not None and waiter.attempt == attempt:
            waiter.attempt = None
            heapq.heappush(self._queue, ticket)
        return server

    def _slots(self, url: str, limit: int) -> ServerSlots:
        return ServerSlots(url, limit, *self._back_offs, chance=self._chance)

    def _forget_if_left(self, server: ServerSlots) -> None:
        if server.retired and not server.load and not server.open and server in self.leaving:
            self.leaving.remove(server)

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _note_whether_down(self, now: float) -> None:
        down = not self.outlook.more_come and all(server.failures and not server.open for server in self.servers)
        if not down:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = now

    def _out_of_patience_at(self, waiter: _Waiter) -> float:
        if self._down_since is None:
            return float("inf")
        return max(self._down_since, waiter.since) + self._patience_s

    def _late_error(self, waiter: _Waiter, now: float) -> OpenEnvError:
        down = self._down_since is not None
        return late_error(
            now - waiter.since, self.servers, self.outlook, is_down=down, in_use=self.lent, waiting=len(self._waiters)
        )
