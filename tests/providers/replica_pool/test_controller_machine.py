"""The controller and the sessions' state under any order of events, in step as the pool has them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.providers.pool_decisions import Close, Connect, Decision, Grant, Refuse
from openenv_trl.providers.pool_state import PoolState
from openenv_trl.providers.replica_pool import PoolSettings
from openenv_trl.providers.replica_pool.controller import ReplicaController
from openenv_trl.providers.replica_pool.decisions import (
    Admit,
    Drop,
    FailWaiters,
    Load,
    Probe,
    RemoveReplica,
    Retire,
    ServerLoad,
    StartReplica,
)
from openenv_trl.providers.replica_pool.member import MemberState

INFINITY = float("inf")


class ReplicaMachine(RuleBasedStateMachine):
    """Keeps books of servers from the decisions alone."""

    @initialize(
        least=st.integers(0, 2),
        more=st.integers(0, 3),
        sessions=st.integers(1, 3),
        warm=st.integers(0, 4),
        sources=st.integers(1, 2),
        remotes=st.integers(0, 1),
        starting=st.integers(1, 3),
        rate=st.sampled_from([None, 1.0, 4.0]),
        age=st.sampled_from([None, 50.0]),
        failures=st.integers(1, 3),
        chance=st.sampled_from([0.0, 0.7]),
    )
    def make(self, least, more, sessions, warm, sources, remotes, starting, rate, age, failures, chance) -> None:
        self.now = 0.0
        self.settings = PoolSettings(
            min_replicas=least,
            max_replicas=max(least + more, 1),
            sessions_per_replica=sessions,
            warm_sessions=warm,
            max_starting=starting,
            starts_per_second=rate,
            start_failures=failures,
            max_age_s=age,
            idle_s=5.0,
        )
        self.remotes = [f"remote-{number}" for number in range(remotes)]
        self.state = PoolState([], sessions)
        self.controller = ReplicaController(self.settings, sources, self.remotes, self.now, chance=lambda: chance)
        self.starting: dict[int, float] = {}
        self.running: dict[int, str] = {}  # what a provider runs, also while it drains or is dead
        self.removing: set[int] = set()
        self.dead: set[str] = set()  # that the controller was told of
        self.draining: set[str] = set()
        self.open_to: set[str] = set()  # servers that get sessions
        self.probing: dict[int, str] = {}
        self.numbers = dict(zip(self.controller.members, self.remotes, strict=True))
        self.waiting: set[int] = set()
        self.attempts: dict[int, tuple[int, str]] = {}
        self.lent: dict[int, str] = {}
        self.closing: set[int] = set()
        self.started_at: list[float] = []
        self.sources = sources
        self.upsets = 0
        self.plan()

    # As the pool carries decisions out.

    def callers_did_something(self) -> None:
        """Not each caller is worth a plan."""
        if self.state.upsets != self.upsets or not self.controller.is_calm(self.state.demand):
            self.plan()

    def plan(self) -> None:
        self.upsets = self.state.upsets
        for _ in range(50):
            servers = [*self.state.leaving, *self.state.servers]
            load = Load(
                self.state.demand,
                self.state.demand - self.state.lent,
                self.state.queued,
                self.state.queued_since,
                {s.url: ServerLoad(s.load + s.closing, s.allowed, bool(s.failures)) for s in servers},
            )
            for decision in self.controller.plan(self.now, load):
                self.carry_out(decision)
            self.state.set_outlook(self.controller.outlook(self.now), self.now)
            if self.controller.wake_at > self.now:
                return
        raise AssertionError("the controller never comes to rest")

    def carry_out(self, decision: object) -> None:
        if isinstance(decision, StartReplica):
            self.starting[decision.member] = self.now
            self.started_at.append(self.now)
        elif isinstance(decision, RemoveReplica):
            url = self.running[decision.member]
            assert url not in self.open_to
            assert url in self.dead or url not in self.lent.values()
            assert url in self.dead or not any(where == url for _, where in self.attempts.values())
            self.draining.discard(url)
            self.removing.add(decision.member)
        elif isinstance(decision, Probe):
            url = self.numbers[decision.member]
            assert url in self.remotes or decision.member in self.running
            assert decision.member not in self.probing
            self.probing[decision.member] = url
        elif isinstance(decision, Admit):
            assert decision.url not in self.dead
            self.open_to.add(decision.url)
            self.draining.discard(decision.url)
            self.take(self.state.add_server(decision.url, self.settings.sessions_per_replica, self.now))
        elif isinstance(decision, Retire):
            self.open_to.remove(decision.url)
            self.draining.add(decision.url)
            self.take(self.state.retire_server(decision.url, self.now))
        elif isinstance(decision, Drop):
            self.open_to.discard(decision.url)
            self.draining.discard(decision.url)
            if decision.url not in self.remotes:
                self.dead.add(decision.url)
            self.take(self.state.drop_server(decision.url, self.now))
        else:
            assert isinstance(decision, FailWaiters)
            assert not self.open_to
            assert not self.starting
            self.take(self.state.fail_waiters(decision.error, self.now))
            assert not self.waiting

    def take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Grant):
                assert decision.url in self.open_to
                self.waiting.remove(decision.ticket)
                self.lent[decision.session] = decision.url
            elif isinstance(decision, Connect):
                assert decision.url in self.open_to
                self.attempts[decision.attempt] = (decision.ticket, decision.url)
            elif isinstance(decision, Refuse):
                self.waiting.remove(decision.ticket)
            elif isinstance(decision, Close):
                self.closing.add(decision.session)

    # Callers.

    @rule(callers=st.integers(1, 4))
    def callers_come(self, callers: int) -> None:
        for _ in range(callers):
            ticket, decisions = self.state.request(self.now, INFINITY)
            self.waiting.add(ticket)
            self.take(decisions)
        self.callers_did_something()

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), outcome=st.sampled_from(["connected", "connected", "connected", "refused", "failed"]))
    def attempt_ends(self, data: st.DataObject, outcome: str) -> None:
        self.end_attempt(data.draw(st.sampled_from(sorted(self.attempts))), outcome)

    def end_attempt(self, attempt: int, outcome: str) -> None:
        _, url = self.attempts.pop(attempt)
        if url in self.dead:
            self.take(self.state.abandoned(attempt, self.now))
        elif outcome == "connected":
            self.take(self.state.connected(attempt, self.now)[1])
        elif outcome == "failed":
            self.take(self.state.failed(attempt, self.now, "nobody there"))
        else:
            self.take(self.state.refused(attempt, self.now))
        self.callers_did_something()

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.give_back(data.draw(st.sampled_from(sorted(self.lent))))

    def give_back(self, session: int) -> None:
        url = self.lent.pop(session)
        self.take(self.state.release(session, self.now, healthy=url not in self.dead))
        self.callers_did_something()

    @precondition(lambda self: self.closing)
    @rule()
    def closed(self) -> None:
        self.take(self.state.closed(self.closing.pop(), self.now))
        self.callers_did_something()

    # Servers.

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), outcome=st.sampled_from(["ready", "ready", "dead", "fails", "cannot work"]))
    def start_ends(self, data: st.DataObject, outcome: str) -> None:
        self.end_start(data.draw(st.sampled_from(sorted(self.starting))), outcome)

    def end_start(self, member: int, outcome: str) -> None:
        del self.starting[member]
        if outcome in ("ready", "dead"):
            url = self.running[member] = self.numbers[member] = f"server-{member}"
            if outcome == "dead":  # which is told before its start is
                self.controller.exited(url, "it was killed", self.now)
            self.controller.started(member, url, self.now)
        else:
            error = (
                ServerStartError("it ended", log_tail="no module")
                if outcome == "fails"
                else ConfigurationError("no such image")
            )
            self.controller.start_failed(member, error, self.now)
        self.plan()
        if outcome == "dead":
            assert f"server-{member}" not in self.open_to
        if outcome == "cannot work" and self.sources == 1 and not self.open_to and not self.starting:
            assert not self.waiting

    @precondition(lambda self: self.removing)
    @rule()
    def removal_ends(self) -> None:
        member = self.removing.pop()
        del self.running[member]
        self.controller.removed(member)
        self.plan()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def replica_dies(self, data: st.DataObject) -> None:
        url = data.draw(st.sampled_from(sorted(self.running.values())))
        self.controller.exited(url, "it was killed", self.now)
        self.plan()
        assert url not in self.open_to
        assert url not in self.draining

    @precondition(lambda self: self.probing)
    @rule(data=st.data(), failure=st.sampled_from(["", "", "no answer"]), runs=st.booleans())
    def probe_ends(self, data: st.DataObject, failure: str, runs: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.probing)))
        del self.probing[member]
        self.controller.probed(member, failure, self.now, runs=runs)
        self.plan()

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 6.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_until(self.now + seconds)

    def pass_until(self, end: float) -> None:
        """As the pool does: plans when the controller said, and the first caller minds the sessions' time."""
        for _ in range(10_000):
            head = self.state.head
            at = INFINITY if head is None else self.state.wake_at(head, self.now)
            if head is not None and at <= self.now:
                self.take(self.state.tick(self.now))
                at = INFINITY
            next_at = min(end, self.controller.wake_at, at)
            self.now = max(self.now, next_at)
            self.take(self.state.tick(self.now))
            if self.now >= self.controller.wake_at:
                self.plan()
            self.callers_did_something()
            if self.now >= end:
                return

    # What always holds.

    @invariant()
    def never_more_than_the_most(self) -> None:
        assert len(self.starting) + len(self.running) <= self.settings.max_replicas
        assert len(self.starting) <= self.settings.max_starting

    @invariant()
    def starts_keep_their_rate(self) -> None:
        if self.settings.starts_per_second is not None:
            spacing = 1 / self.settings.starts_per_second
            for earlier, later in zip(self.started_at, self.started_at[1:], strict=False):
                assert later - earlier >= spacing - 1e-9

    @invariant()
    def the_books_agree(self) -> None:
        count = self.controller.count
        assert count(MemberState.STARTING) == len(self.starting)
        assert count(MemberState.REMOVING) == len(self.removing)
        assert count(MemberState.DRAINING) == len(self.draining)
        assert count(MemberState.READY) == len(self.open_to)
        assert {server.url for server in self.state.servers} == self.open_to
        owned = len(self.starting) + len(self.running)
        assert len(self.controller.members) == owned + len(self.remotes)

    @invariant()
    def calm_means_that_a_plan_changes_nothing(self) -> None:
        if self.controller.is_calm(self.state.demand):
            before = (len(self.started_at), set(self.open_to), self.controller.wake_at)
            self.plan()
            assert before == (len(self.started_at), set(self.open_to), self.controller.wake_at)

    def settle(self) -> None:
        """Everything that is under way ends well."""
        for attempt in sorted(self.attempts):
            self.end_attempt(attempt, "connected")
        for member in sorted(self.starting):
            self.end_start(member, "ready")
        while self.removing:
            self.removal_ends()
        while self.closing:
            self.closed()
        for member in sorted(self.probing):
            del self.probing[member]
            self.controller.probed(member, "", self.now)
            self.plan()

    def teardown(self) -> None:
        """From any state, once all goes well, everyone is served, and the pool comes down to what it is to keep."""
        for _ in range(300):
            if not (self.waiting or self.lent):
                break
            self.settle()
            for session in sorted(self.lent):
                self.give_back(session)
            self.pass_until(self.now + 1.0)
        assert not self.waiting
        if self.settings.max_age_s is not None:
            return  # replicas come and go for ever
        for _ in range(120):
            self.settle()
            self.pass_until(self.now + 1.0)
        self.settle()
        sessions, remote = self.settings.sessions_per_replica, 0
        allowed = {server.url: server.allowed for server in self.state.servers}
        remote = sum(allowed.get(url, 0) for url in self.remotes)
        each = max([allowed[url] for url in self.open_to if url not in self.remotes and allowed[url]] or [sessions])
        if all(allowed[url] == each for url in self.open_to if url not in self.remotes) and not any(
            server.failures for server in self.state.servers
        ):
            warm = -(-max(0, self.settings.warm_sessions - remote) // each)
            wanted = min(max(self.settings.min_replicas, warm), self.settings.max_replicas)
            assert len(self.running) == wanted
        assert len(self.running) >= self.settings.min_replicas


TestReplicaMachine = ReplicaMachine.TestCase
TestReplicaMachine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
