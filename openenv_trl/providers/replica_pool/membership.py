"""The servers of a pool, and what becomes of them: started, ready, dead, gone. `ReplicaController` decides over them.

No clock, socket or task: the time is an argument, replicas are numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.providers.pool_server import BackOff, no_chance
from openenv_trl.providers.replica_pool.decisions import Admit, Decision, Drop, RemoveReplica
from openenv_trl.providers.replica_pool.member import Member, MemberState, Source
from openenv_trl.providers.replica_pool.settings import PoolSettings
from openenv_trl.providers.replica_pool.start_limit import StartLimit


class Membership:
    """The servers of one pool.

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
        self.settings = settings
        self.members: dict[int, Member] = {}
        self.counts: Counter[str] = Counter()
        """``starts``, ``start_failures``, ``removals`` and ``deaths`` so far."""
        back_off = BackOff(settings.start_back_off_s, settings.longest_start_back_off_s, jitter=0.5)
        self._sources = [Source(back_off, settings.start_failures) for _ in range(sources)]
        self._most = settings.max_replicas if sources else 0
        own = StartLimit(
            max_replicas=self._most,
            max_starting=settings.max_starting,
            starts_per_second=settings.starts_per_second,
        )
        self._shared = shared
        self._limits = [own] if shared is None else [own, shared]
        self._chance = chance
        self._decisions: list[Decision] = []
        self._early_exits: dict[str, str] = {}
        self._last_number = 0
        for url in remotes:
            self._is_ready(self._add(None, MemberState.READY, now), url, now)

    # Events.

    def adopt(self, source: int, url: str, now: float) -> int:
        """A provider runs a replica already; returns its number."""
        member = self._add(source, MemberState.READY, now)
        for limit in self._limits:
            limit.exists(self)
        self._is_ready(member, url, now)
        return member.number

    def started(self, number: int, url: str, now: float) -> None:
        """A start brought a replica that is ready."""
        member = self.members[number]
        for limit in self._limits:
            limit.start_ended()
        source = self._source_of(member)
        member.starts_failed_before = source.failures
        source.has_started = True
        source.failures, source.retry_at, source.error = 0, float("-inf"), None
        self._is_ready(member, url, now)
        why = self._early_exits.pop(url, None)
        if why is not None:
            self._died(member, why, now)
        if not self._any(MemberState.STARTING):
            self._early_exits.clear()

    def start_failed(self, number: int, error: BaseException, now: float) -> None:
        """A start failed; nothing is left of it."""
        member = self.members.pop(number)
        for limit in self._limits:
            limit.start_ended()
            limit.gone(self)
        self.counts["start_failures"] += 1
        source = self._source_of(member)
        failures = source.failures
        # Starts that were under way together, and failed together, count once.
        if member.since >= source.failed_at:
            failures += 1
        # As when its image is missing: nothing ran, and nothing ever has.
        never_ran = isinstance(error, ServerStartError) and not error.log_tail.strip() and not source.has_started
        if never_ran or isinstance(error, ConfigurationError):
            failures = max(failures, source.limit)
        source.note_failure(error, failures, now, self._chance())

    def removed(self, number: int) -> None:
        """A replica that was to be removed is gone, or given up."""
        member = self.members.pop(number)
        self.counts["removals"] += 1
        for limit in self._limits:
            limit.gone(self, yielded=member.yielded and limit is self._shared)

    def exited(self, url: str, why: str, now: float) -> None:
        """A provider told that a replica has died."""
        for member in self.members.values():
            if member.url == url and member.source is not None:
                if member.state in (MemberState.READY, MemberState.DRAINING):
                    self._died(member, why, now)
                return
        if self._any(MemberState.STARTING):
            self._early_exits[url] = why  # it was ready, and died before that was told

    def probed(self, number: int, failure: str, now: float, *, runs: bool = True) -> None:
        """A health check has ended.

        Args:
            number: Whose.
            failure: What came in place of a healthy answer; "" for one.
            now: The time.
            runs: Whether the provider says that the replica runs at all.
        """
        member = self.members.get(number)
        if member is None:
            return
        member.probing, member.probed_at = False, now
        member.probe_at = now + self._interval_s()
        member.last_failure = failure
        member.failures = member.failures + 1 if failure else 0
        if not failure:
            if member.state is MemberState.AWAY:
                member.state = MemberState.READY
                self._decisions.append(Admit(member.number, member.url))
            return
        given_up = member.failures >= self.settings.health_failures
        if member.source is None:
            if given_up and member.state is MemberState.READY:
                member.state = MemberState.AWAY
                self._decisions.append(Drop(member.url, f"{member.url} answers no health check: {failure}."))
        elif member.state in (MemberState.READY, MemberState.DRAINING) and (given_up or not runs):
            ended = f"{member.failures} health checks in a row failed" if runs else "its provider says that it ended"
            self._died(member, f"The environment server {member.url} is taken for dead: {ended} ({failure}).", now)

    def close(self) -> None:
        """The pool ends, and all replicas with it."""
        for member in self.members.values():
            if member.source is not None:
                for limit in self._limits:
                    limit.gone(self, yielded=member.yielded and limit is self._shared)
                    if member.state is MemberState.STARTING:
                        limit.start_ended()
        self.members.clear()
        self._decisions.clear()

    def count(self, state: MemberState, *, remote: bool | None = None) -> int:
        """How many servers are in a state; of all, or only of those that are (not) remote."""
        return sum(
            member.state is state and remote in (None, member.source is None) for member in self.members.values()
        )

    # How members change, and what is asked of them.

    def _add(self, source: int | None, state: MemberState, now: float) -> Member:
        self._last_number += 1
        member = self.members[self._last_number] = Member(self._last_number, source, state, since=now)
        return member

    def _is_ready(self, member: Member, url: str, now: float) -> None:
        member.state, member.url, member.since = MemberState.READY, url, now
        member.probe_at = now + self._interval_s()
        self._decisions.append(Admit(member.number, url))

    def _died(self, member: Member, why: str, now: float) -> None:
        self.counts["deaths"] += 1
        member.state = MemberState.REMOVING
        self._decisions += [Drop(member.url, why), RemoveReplica(member.number)]
        age = now - member.since
        if age < self.settings.longest_start_back_off_s:
            error = ServerStartError(f"A replica died {age:.3g} s after it was ready. {why}")
            self._source_of(member).note_failure(error, member.starts_failed_before + 1, now, self._chance())

    def _source_of(self, member: Member) -> Source:
        assert member.source is not None
        return self._sources[member.source]

    def _owned(self) -> list[Member]:
        return [m for m in self.members.values() if m.source is not None]

    def _active(self) -> list[Member]:
        states = (MemberState.STARTING, MemberState.READY)
        return [m for m in self._owned() if m.state in states]

    def _any(self, state: MemberState) -> bool:
        return any(member.state is state for member in self.members.values())

    def _interval_s(self) -> float:
        # Many servers that started together are not asked together.
        return self.settings.health_interval_s * (1.0 - 0.2 * self._chance())
