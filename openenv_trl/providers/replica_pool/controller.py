"""When replicas start and go, decided: events and the time come in, decisions go out.

Invariants:

- Replicas that start, run and stop together are never more than ``max_replicas``, and starts keep to their limits.
- Only a replica without a session is removed, unless it is dead. One that is to go gets no new session first.
- A replica that is dead is out of the pool at once, and is replaced as far as it is needed.
- An idle pool comes down to the replicas that ``min_replicas`` and ``warm_sessions`` ask for, and stays there.
- Servers that were given by their address are neither started nor removed.
- Callers that wait while nothing runs and nothing can be started are told why.

No clock, socket or task: the time is an argument, replicas are numbers. ``pool.py`` carries the decisions out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from openenv_trl.providers.pool_decisions import Outlook
from openenv_trl.providers.pool_server import no_chance
from openenv_trl.providers.replica_pool.decisions import (
    Admit,
    Decision,
    FailWaiters,
    Load,
    Probe,
    RemoveReplica,
    Retire,
    ServerLoad,
    StartReplica,
)
from openenv_trl.providers.replica_pool.member import Member, MemberState
from openenv_trl.providers.replica_pool.membership import Membership
from openenv_trl.providers.replica_pool.settings import PoolSettings
from openenv_trl.providers.replica_pool.sizing import Size, size_for
from openenv_trl.providers.replica_pool.start_limit import StartLimit

_NOBODY = ServerLoad(busy=0, allowed=0)
# A server to which no session can be opened is asked for its health this soon, not only when it is its turn.
_SUSPECT_PROBE_S = 1.0


class ReplicaController(Membership):
    """Decides over the servers of one pool.

    Each event is told by its method; then ``plan`` says what is to be done. ``plan`` is also to be called at `wake_at`,
    and when the number of callers leaves what `is_calm` allows.

    Args:
        settings: What the pool may do.
        sources: How many providers there are.
        remotes: Addresses of servers that run already.
        now: The time.
        shared: Limits that several pools keep together.
        chance: Spreads pauses: gives numbers from 0 to 1.
    """

    def __init__(
        self,
        settings: PoolSettings,
        sources: int,
        remotes: Sequence[str],
        now: float,
        *,
        shared: StartLimit | None = None,
        chance: Callable[[], float] = no_chance,
    ) -> None:
        super().__init__(settings, sources, remotes, now, shared=shared, chance=chance)
        self._wake_at = now
        self._calm: tuple[float, float] | None = None
        self._surplus_since: float | None = None
        self._most_needed = 0

    # What can be asked.

    @property
    def wake_at(self) -> float:
        """When ``plan`` is to be called if nothing happens before; infinity for never."""
        return self._wake_at

    def is_calm(self, demand: int) -> bool:
        """Whether nothing is to be decided only because so many sessions are in demand now."""
        return self._calm is not None and self._calm[0] <= demand <= self._calm[1]

    def outlook(self, now: float) -> Outlook:
        """Whether more servers come, for those who wait, and how things stand with them."""
        starting = self.count(MemberState.STARTING)
        on_their_way = starting or self._any(MemberState.REMOVING)
        can_start = any(not source.given_up(now) for source in self._sources)
        none_runs = not self.count(MemberState.READY, remote=False)
        parts = [f"{starting} replica{'s start' if starting > 1 else ' starts'}"] if starting else []
        errors = [source.error for source in self._sources if source.error is not None]
        parts += [f"the last start failed: {(str(error) or repr(error)).splitlines()[0]}" for error in errors]
        away = (member for member in self.members.values() if member.state is MemberState.AWAY)
        parts += [f"{member.url} does not answer: {member.last_failure}" for member in away]
        return Outlook(bool(on_their_way or (can_start and none_runs and self._most)), "; ".join(parts))

    # Decisions.

    def plan(self, now: float, load: Load) -> list[Decision]:
        """What is to be done now.

        Args:
            now: The time.
            load: The sessions.
        """
        self._wake_at = float("inf")
        self._remove_drained(load)
        self._retire_the_aged(now)
        self._resize(now, load)
        self._tell_waiters(now, load)
        self._probe(now, load)
        decisions, self._decisions = self._decisions, []
        if decisions:
            self._wake(now)  # what they change may be a reason for more
        return decisions

    def _resize(self, now: float, load: Load) -> None:
        settings = self.settings
        active = self._active()
        remote = sum(self._capacity(m, load) for m in self.members.values() if self._is(m, MemberState.READY, None))
        ready = [self._capacity(m, load) for m in active if m.state is MemberState.READY]
        each = max([capacity for capacity in ready if capacity] or [settings.sessions_per_replica])
        capacities = [*ready, *[each] * (len(active) - len(ready))]
        extra = settings.warm_sessions - remote

        def size(sessions: int) -> Size:
            return size_for(sessions + extra, capacities, each, settings.min_replicas, self._most)

        full, target = size(load.demand), size(load.demand - load.queued).replicas
        if load.queued_since is not None and full.replicas > max(target, len(active)):
            pressed_at = load.queued_since + settings.scale_up_wait_s
            if now >= pressed_at or not (active or self.count(MemberState.READY)):
                target = full.replicas
            else:
                self._wake(pressed_at)
        claims = False
        if target > len(active):
            self._surplus_since = None
            claims = self._grow(target - len(active), now)
        else:
            self._shrink(len(active), full.replicas, now, load)
        if self._shared is not None:
            if claims:
                self._shared.claim(self, has_none=not self._owned())
            else:
                self._shared.unclaim(self)
            self._yield(self._shared, len(self._active()) - full.replicas, load)
        unsettled = (
            self._any(MemberState.DRAINING)
            or (load.queued and full.replicas > len(active))
            or any(source.failures for source in self._sources)
        )
        self._calm = None if unsettled else (full.lowest - extra, full.highest - extra)

    def _grow(self, count: int, now: float) -> bool:
        """Take back what drains, and start the rest, as far as limits go; says whether other pools are in the way."""
        for member in self.members.values():
            if count and member.state is MemberState.DRAINING and not (member.aged or member.yielded):
                member.state = MemberState.READY
                self._decisions.append(Admit(member.number, member.url))
                count -= 1
        for _ in range(count):
            source = self._source_to_start(now)
            if source is None:
                self._wake(min(each.retry_at for each in self._sources))
                return False
            if self._shared is not None and self._shared.comes_after(self):
                return True
            may_start_at = max(limit.may_start_at(now) for limit in self._limits)
            if may_start_at > now:
                self._wake(may_start_at)
                blocked = self._shared is not None and self._shared.existing >= self._shared.max_replicas
                return blocked and len(self._owned()) < self._most
            member = self._add(source, MemberState.STARTING, now)
            for limit in self._limits:
                limit.started(self, now)
            self.counts["starts"] += 1
            self._decisions.append(StartReplica(member.number, source))
        return False

    def _shrink(self, active: int, needed: int, now: float, load: Load) -> None:
        """Let replicas go that would not have been needed for a time."""
        if needed >= active:
            self._surplus_since = None
            return
        if self._surplus_since is None:
            self._surplus_since, self._most_needed = now, needed
        self._most_needed = max(self._most_needed, needed)
        if now >= self._surplus_since + self.settings.idle_s:
            self._drain(active - self._most_needed, load)
            self._surplus_since, self._most_needed = now, needed
        if needed < len(self._active()) and self.count(MemberState.READY, remote=False):
            self._wake(self._surplus_since + self.settings.idle_s)

    def _yield(self, shared: StartLimit, surplus: int, load: Load) -> None:
        """Give replicas up for other pools."""
        owed = min(shared.owed(self), max(surplus, 0))
        in_use = self.count(MemberState.READY, remote=False)
        if not owed and shared.owes_one_in_use(self) and in_use > max(1, self.settings.min_replicas):
            owed = 1
        for member in self._drain(owed, load):
            member.yielded = True
            shared.yields()

    def _drain(self, count: int, load: Load) -> list[Member]:
        ready = [m for m in self._active() if m.state is MemberState.READY]
        ready.sort(key=lambda m: (load.servers.get(m.url, _NOBODY).busy, m.since))
        for member in ready[:count]:
            member.state = MemberState.DRAINING
            self._decisions.append(Retire(member.url))
        return ready[:count]

    def _retire_the_aged(self, now: float) -> None:
        """One at a time, so that the others carry on."""
        most = self.settings.max_age_s
        if most is None or any(m.aged for m in self.members.values()):
            return
        ready = [m for m in self._active() if m.state is MemberState.READY]
        oldest = min(ready, key=lambda m: m.since, default=None)
        if oldest is None:
            return
        if now < oldest.since + most:
            self._wake(oldest.since + most)
            return
        oldest.state, oldest.aged = MemberState.DRAINING, True
        self._decisions.append(Retire(oldest.url))

    def _remove_drained(self, load: Load) -> None:
        for member in self.members.values():
            if member.state is MemberState.DRAINING and not load.servers.get(member.url, _NOBODY).busy:
                member.state = MemberState.REMOVING
                self._decisions.append(RemoveReplica(member.number))

    def _tell_waiters(self, now: float, load: Load) -> None:
        there = self._any(MemberState.READY) or self._any(MemberState.STARTING)
        if there or not load.waiting or not self._most or not all(source.given_up(now) for source in self._sources):
            return
        last = max(self._sources, key=lambda source: source.failed_at)
        assert last.error is not None
        self._decisions.append(FailWaiters(last.error))

    def _probe(self, now: float, load: Load) -> None:
        for member in self.members.values():
            if member.probing or member.state in (MemberState.STARTING, MemberState.REMOVING):
                continue
            if load.servers.get(member.url, _NOBODY).failing:
                soon = member.probed_at + min(_SUSPECT_PROBE_S, self.settings.health_interval_s)
                member.probe_at = min(member.probe_at, max(now, soon))
            if now >= member.probe_at:
                member.probing = True
                self._decisions.append(Probe(member.number))
            else:
                self._wake(member.probe_at)

    def _source_to_start(self, now: float) -> int | None:
        """The provider with the fewest replicas of those that may start one."""
        replicas = Counter(member.source for member in self.members.values())
        ready = [index for index, source in enumerate(self._sources) if now >= source.retry_at]
        return min(ready, key=lambda index: replicas[index], default=None)

    def _capacity(self, member: Member, load: Load) -> int:
        server = load.servers.get(member.url)
        if server is None:
            return self.settings.sessions_per_replica
        return 0 if server.failing else server.allowed

    def _is(self, member: Member, state: MemberState, source: int | None) -> bool:
        return member.state is state and member.source == source

    def _wake(self, at: float) -> None:
        self._wake_at = min(self._wake_at, at)
