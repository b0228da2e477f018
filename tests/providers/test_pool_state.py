"""The pool's decisions: limits kept, no session lost or lent twice, callers served in order, each one told."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from openenv_trl.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DeadlineExceededError,
    ServerStartError,
    SessionStateError,
)
from openenv_trl.providers.pool_decisions import Abandon, Close, Connect, Decision, Grant, Outlook, Refuse
from openenv_trl.providers.pool_server import BackOff
from openenv_trl.providers.pool_state import PoolState

INFINITY = float("inf")


class PoolMachine(RuleBasedStateMachine):
    """Drives a pool with any order of events, and keeps books of its own from the decisions alone."""

    @initialize(servers=st.integers(0, 3), limit=st.integers(1, 3))
    def make(self, servers: int, limit: int) -> None:
        self.now = 0.0
        self.limit = limit
        self.urls = [f"server-{i}" for i in range(servers)]
        self.retired: list[str] = []
        self.dropped: set[str] = set()
        self.state = PoolState(self.urls, limit, server_patience_s=20.0)
        self.waiting: dict[int, float] = {}  # ticket -> deadline; told tickets are removed
        self.attempts: dict[int, tuple[int, str]] = {}  # attempt -> ticket, server
        self.place: dict[int, tuple[str, str]] = {}  # session -> "in use" | "idle" | "closing" | "gone", server
        self.told: set[int] = set()
        self.pool_closed = False

    def connecting(self, ticket: int) -> bool:
        return any(owner == ticket for owner, _ in self.attempts.values())

    def first_waiting(self) -> int | None:
        return min((t for t in self.waiting if not self.connecting(t)), default=None)

    def take(self, decisions: list[Decision], own: int | None = None, new: int | None = None) -> None:
        """Checks each decision and books it. `own` may be served out of turn: its own connect brought the session."""
        for decision in decisions:
            if isinstance(decision, Grant):
                assert decision.ticket in self.waiting
                assert decision.url in self.urls
                assert self.place[decision.session] == ("idle", decision.url) or decision.session == new
                if not (decision.ticket == own and decision.session == new):
                    first = self.first_waiting()
                    assert first == decision.ticket or (first is None and self.connecting(decision.ticket))
                self.place[decision.session] = ("in use", decision.url)
                self.tell(decision.ticket)
            elif isinstance(decision, Connect):
                assert decision.ticket == self.first_waiting()
                assert decision.url in self.urls
                assert not any(place == "idle" for place, _ in self.place.values())
                self.attempts[decision.attempt] = (decision.ticket, decision.url)
            elif isinstance(decision, Refuse):
                self.tell(decision.ticket)
            elif isinstance(decision, Abandon):
                assert self.connecting(decision.ticket)
                on_dropped = any(t == decision.ticket and url in self.dropped for t, url in self.attempts.values())
                assert decision.ticket in self.told or on_dropped
            else:
                place, url = self.place[decision.session]
                assert place in ("idle", "in use")
                self.place[decision.session] = ("closing", url)

    def tell(self, ticket: int) -> None:
        assert ticket not in self.told
        del self.waiting[ticket]
        self.told.add(ticket)

    @rule(timeout=st.sampled_from([0.0, 0.05, 1.0, 60.0, INFINITY]))
    def request(self, timeout: float) -> None:
        ticket, decisions = self.state.request(self.now, self.now + timeout)
        self.waiting[ticket] = self.now + timeout
        self.take(decisions)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[ticket]
        self.take(self.state.cancel(ticket, self.now))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), outcome=st.sampled_from(["connected", "connected", "refused", "failed", "abandoned"]))
    def attempt_ends(self, data: st.DataObject, outcome: str) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.attempts)))
        self.end_attempt(attempt, outcome)

    def end_attempt(self, attempt: int, outcome: str) -> None:
        ticket, url = self.attempts.pop(attempt)
        if outcome == "connected":
            session, decisions = self.state.connected(attempt, self.now)
            assert session not in self.place
            self.place[session] = ("idle", url)
            self.take(decisions, own=ticket, new=session)
        elif outcome == "failed":
            self.take(self.state.failed(attempt, self.now, "nobody there"))
        else:
            self.take(getattr(self.state, outcome)(attempt, self.now))

    @precondition(lambda self: any(place == "in use" for place, _ in self.place.values()))
    @rule(data=st.data(), healthy=st.booleans())
    def release(self, data: st.DataObject, healthy: bool) -> None:
        in_use = sorted(session for session, (place, _) in self.place.items() if place == "in use")
        session = data.draw(st.sampled_from(in_use))
        if healthy:
            self.place[session] = ("idle", self.place[session][1])
        self.take(self.state.release(session, self.now, healthy))

    @precondition(lambda self: any(place == "closing" for place, _ in self.place.values()))
    @rule(data=st.data())
    def closing_ends(self, data: st.DataObject) -> None:
        closing = sorted(session for session, (place, _) in self.place.items() if place == "closing")
        session = data.draw(st.sampled_from(closing))
        self.place[session] = ("gone", self.place[session][1])
        self.take(self.state.closed(session, self.now))

    @rule(number=st.integers(3, 8))
    def a_server_comes(self, number: int) -> None:
        url = f"server-{number}"
        if url not in (*self.urls, *self.retired, *self.dropped):
            self.urls.append(url)
            self.take(self.state.add_server(url, self.limit, self.now))

    @precondition(lambda self: self.urls)
    @rule(data=st.data(), drop=st.booleans())
    def a_server_goes(self, data: st.DataObject, drop: bool) -> None:
        url = data.draw(st.sampled_from(self.urls))
        self.urls.remove(url)
        if drop:
            self.dropped.add(url)
            self.take(self.state.drop_server(url, self.now))
            given_up = [ticket for ticket, where in self.attempts.values() if where == url]
            assert all(self.connecting(ticket) for ticket in given_up)
        else:
            self.retired.append(url)
            self.take(self.state.retire_server(url, self.now))
        assert not any(at == ("idle", url) for at in self.place.values())

    @precondition(lambda self: self.retired)
    @rule(data=st.data(), drop=st.booleans())
    def a_retired_server_is_taken_back_or_dies(self, data: st.DataObject, drop: bool) -> None:
        url = data.draw(st.sampled_from(self.retired))
        self.retired.remove(url)
        if drop:
            self.dropped.add(url)
            self.take(self.state.drop_server(url, self.now))
        else:
            self.urls.append(url)
            self.take(self.state.add_server(url, self.limit, self.now))

    @rule(more_come=st.booleans())
    def the_outlook_changes(self, more_come: bool) -> None:
        self.state.set_outlook(Outlook(more_come, "one starts"), self.now)

    @rule(chance=st.integers(0, 9))
    def those_who_wait_are_told_that_none_starts(self, chance: int) -> None:
        if chance == 0:
            self.take(self.state.fail_waiters(ServerStartError("it ended"), self.now))
            assert not self.waiting

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.3, 2.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.state.tick(self.now))

    @precondition(lambda self: not self.pool_closed)
    @rule(chance=st.integers(0, 19))
    def close(self, chance: int) -> None:
        if chance == 0:
            self.pool_closed = True
            self.take(self.state.close(self.now))
            assert not self.waiting

    @invariant()
    def limits_are_kept(self) -> None:
        for url in [*self.urls, *self.retired]:
            held = [place for place, where in self.place.values() if where == url and place != "gone"]
            under_way = [where for _, where in self.attempts.values() if where == url]
            assert len(held) + len(under_way) <= self.limit

    @invariant()
    def the_books_of_each_server_agree(self) -> None:
        assert sorted(server.url for server in self.state.servers) == sorted(self.urls)
        assert {server.url for server in self.state.leaving} <= set(self.retired)
        for server in [*self.state.servers, *self.state.leaving]:
            places = [place for place, where in self.place.values() if where == server.url]
            assert server.in_use == places.count("in use")
            assert len(server.idle) == places.count("idle")
            assert server.closing == places.count("closing")
            assert server.connecting == [where for _, where in self.attempts.values()].count(server.url)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        idle = any(place == "idle" for place, _ in self.place.values())
        assert not (idle and self.waiting)
        if self.first_waiting() is not None:
            assert not any(server.may_connect(self.now) for server in self.state.servers)

    @invariant()
    def the_next_caller_minds_the_time(self) -> None:
        head = self.state.head
        assert head == self.first_waiting()
        nothing_open = not self.attempts and all(place == "gone" for place, _ in self.place.values())
        if head is not None and nothing_open and (self.urls or not self.state.outlook.more_come):
            assert self.state.wake_at(head, self.now) < INFINITY

    @invariant()
    def metrics_tell_the_truth(self) -> None:
        metrics = self.state.metrics()
        places = [place for place, _ in self.place.values()]
        assert metrics.in_use == places.count("in use")
        assert metrics.idle == places.count("idle")
        assert metrics.closed == places.count("gone")
        assert metrics.opened == len(places)
        assert metrics.connecting == len(self.attempts)
        assert metrics.waiting == len(self.waiting)

    def teardown(self) -> None:
        """From any state, once servers answer and callers release, everyone is served or told."""
        self.state.set_outlook(Outlook(), self.now)
        for _ in range(2000):
            if not self.waiting:
                return
            if self.attempts:
                self.end_attempt(min(self.attempts), "connected")
            elif any(place == "in use" for place, _ in self.place.values()):
                session = min(s for s, (place, _) in self.place.items() if place == "in use")
                self.place[session] = ("idle", self.place[session][1])
                self.take(self.state.release(session, self.now, healthy=True))
            elif any(place == "closing" for place, _ in self.place.values()):
                session = min(s for s, (place, _) in self.place.items() if place == "closing")
                self.place[session] = ("gone", self.place[session][1])
                self.take(self.state.closed(session, self.now))
            else:
                head = self.state.head
                assert head is not None
                self.now = self.state.wake_at(head, self.now)
                self.take(self.state.tick(self.now))
        raise AssertionError(f"{len(self.waiting)} callers wait for ever")


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def _one(decisions: list[Decision], kind: type) -> Decision:
    (found,) = [decision for decision in decisions if isinstance(decision, kind)]
    return found


def _open(state: PoolState, now: float = 0.0) -> Grant:
    """One caller that gets a new session."""
    _, decisions = state.request(now, INFINITY)
    _, decisions = state.connected(_one(decisions, Connect).attempt, now)
    return _one(decisions, Grant)


def test_the_least_loaded_server_is_asked_first():
    state = PoolState(["a", "b"], 2)
    assert [_open(state).url for _ in range(4)] == ["a", "b", "a", "b"]


def test_an_open_session_is_used_again_before_another_is_opened():
    state = PoolState(["a", "b"], 2)
    first = _open(state)
    state.release(first.session, 0.0, healthy=True)
    _, decisions = state.request(0.0, INFINITY)
    assert _one(decisions, Grant).session == first.session
    assert state.metrics().reused == 1


def test_refusals_lower_the_limit_until_a_session_ends():
    state = PoolState(["a"], 8)
    held = [_open(state) for _ in range(3)]
    ticket, decisions = state.request(0.0, INFINITY)
    assert state.refused(_one(decisions, Connect).attempt, 0.0) == []
    assert state.servers[0].learned_limit == 3
    [close] = state.release(held[0].session, 0.0, healthy=False)
    assert close == Close(held[0].session)
    assert _one(state.closed(held[0].session, 0.0), Connect).ticket == ticket


def test_a_burst_of_refusals_leaves_the_limit_at_what_was_allowed():
    state = PoolState(["a"], 8)
    attempts = [_one(state.request(0.0, INFINITY)[1], Connect).attempt for _ in range(6)]
    for attempt in attempts[:3]:
        state.refused(attempt, 0.0)
    told = [state.connected(attempt, 0.0)[1] for attempt in attempts[3:]]
    held = [_one(decisions, Grant) for decisions in told]
    assert state.servers[0].learned_limit == 3
    state.refused(_one(told[-1], Connect).attempt, 0.0)  # one more was tried, now that the others went well
    for grant in held[:2]:
        state.release(grant.session, 0.0, healthy=False)
    assert [type(state.closed(grant.session, 0.0)[0]) for grant in held[:2]] == [Connect, Connect]


def test_a_full_server_is_asked_again_after_growing_pauses_and_limits_grow_back():
    state = PoolState(["a"], 8, refused_back_off=BackOff(first_s=1.0, longest_s=4.0))
    ticket, decisions = state.request(0.0, INFINITY)
    now, pauses = 0.0, []
    for _ in range(4):
        assert state.refused(_one(decisions, Connect).attempt, now) == []
        wake_at = state.wake_at(ticket, now)
        pauses.append(wake_at - now)
        assert state.tick(wake_at - 0.01) == []
        now = wake_at
        decisions = state.tick(now)
    assert pauses == [1.0, 2.0, 4.0, 4.0]
    state.connected(_one(decisions, Connect).attempt, now)
    _, decisions = state.request(now, INFINITY)
    assert _one(decisions, Connect)  # without a pause, since the last attempt went well


def test_a_failing_server_is_set_aside_and_tried_again():
    state = PoolState(["a", "b"], 2, failed_back_off=BackOff(first_s=1.0))
    _, decisions = state.request(0.0, INFINITY)
    first = _one(decisions, Connect)
    second = _one(state.failed(first.attempt, 0.0, "refused"), Connect)
    assert (first.url, second.url) == ("a", "b")
    state.connected(second.attempt, 0.0)
    _, decisions = state.request(0.0, INFINITY)
    assert _one(decisions, Connect).url == "b"
    _, decisions = state.request(1.0, INFINITY)
    assert _one(decisions, Connect).url == "a"


def test_a_server_that_stops_answering_loses_its_idle_sessions():
    state = PoolState(["a"], 3)
    held = [_open(state) for _ in range(2)]
    _, decisions = state.request(0.0, INFINITY)
    attempt = _one(decisions, Connect).attempt
    state.release(held[0].session, 0.0, healthy=True)  # goes to the caller whose connect is under way
    state.release(held[1].session, 0.0, healthy=True)
    assert state.failed(attempt, 0.0, "gone") == [Close(held[1].session)]


def test_an_unhealthy_session_takes_its_servers_idle_ones_along():
    state = PoolState(["a", "b"], 2)
    held = [_open(state) for _ in range(4)]  # on a, b, a, b
    state.release(held[2].session, 0.0, healthy=True)
    state.release(held[3].session, 0.0, healthy=True)
    decisions = state.release(held[0].session, 0.0, healthy=False)
    assert decisions == [Close(held[0].session), Close(held[2].session)]
    assert state.metrics().idle == 1


def test_only_when_all_servers_failed_a_late_caller_is_told_that_none_answers():
    state = PoolState(["a", "b"], 1)
    _, decisions = state.request(0.0, 5.0)
    decisions = state.failed(_one(decisions, Connect).attempt, 0.0, "connection refused")
    assert state.failed(_one(decisions, Connect).attempt, 0.0, "no route") == []
    error = _one(state.tick(5.0), Refuse).error
    assert isinstance(error, ConnectionFailedError)
    assert "a: connection refused; b: no route" in str(error)


def test_a_caller_without_a_deadline_is_told_when_no_server_has_answered_for_the_patience_time():
    state = PoolState(["a"], 1, server_patience_s=30.0)
    ticket, decisions = state.request(0.0, INFINITY)
    now = 0.0
    while not any(isinstance(decision, Refuse) for decision in decisions):
        decisions = state.failed(_one(decisions, Connect).attempt, now, "connection refused")
        now = state.wake_at(ticket, now)
        decisions = state.tick(now)
    assert now == 30.0


def test_a_late_caller_is_told_how_many_sessions_are_in_use_and_what_to_raise():
    state = PoolState(["a"], 2)
    for _ in range(2):
        _open(state)
    state.request(0.0, 3.0)
    error = _one(state.tick(3.0), Refuse).error
    assert isinstance(error, DeadlineExceededError)
    for part in (
        "within 3 s",
        "2 sessions are in use",
        "a: 2 in use of 2",
        "sessions_per_server",
        "max_concurrent_envs",
    ):
        assert part in str(error)


def test_a_released_session_passes_over_a_caller_whose_own_connect_is_under_way():
    state = PoolState(["a"], 2)
    held = _open(state)
    connecting, _ = state.request(0.0, INFINITY)
    waiting, _ = state.request(0.0, INFINITY)
    assert _one(state.release(held.session, 0.0, healthy=True), Grant).ticket == waiting
    decisions = state.release(held.session, 0.0, healthy=True)
    assert _one(decisions, Grant).ticket == connecting
    assert _one(decisions, Abandon).ticket == connecting


def test_a_lease_cannot_be_released_twice():
    state = PoolState(["a"], 1)
    held = _open(state)
    state.release(held.session, 0.0, healthy=True)
    with pytest.raises(SessionStateError, match="released before"):
        state.release(held.session, 0.0, healthy=True)


def test_callers_of_a_pool_without_a_server_wait_for_the_one_that_starts():
    state = PoolState([], 2, server_patience_s=5.0)
    state.set_outlook(Outlook(more_come=True, text="1 replica starts"), 0.0)
    ticket, decisions = state.request(0.0, INFINITY)
    assert decisions == []
    assert state.tick(1000.0) == []
    [connect] = state.add_server("a", 2, 1001.0)
    assert isinstance(connect, Connect)
    assert (connect.ticket, connect.url) == (ticket, "a")


def test_callers_whose_deadline_comes_before_any_server_are_told_that_some_start():
    state = PoolState([], 2)
    state.set_outlook(Outlook(more_come=True, text="2 replicas start"), 0.0)
    state.request(0.0, 3.0)
    error = _one(state.tick(3.0), Refuse).error
    assert isinstance(error, DeadlineExceededError)
    assert "No environment server was ready within 3 s (2 replicas start)" in str(error)


def test_callers_of_a_pool_that_no_server_comes_to_are_told_after_the_patience_time():
    state = PoolState([], 2, server_patience_s=5.0)
    ticket, _ = state.request(0.0, INFINITY)
    assert state.wake_at(ticket, 0.0) == 5.0
    assert isinstance(_one(state.tick(5.0), Refuse).error, ConnectionFailedError)


def test_a_retired_servers_sessions_are_closed_when_they_come_back_and_not_lent():
    state = PoolState(["a", "b"], 2)
    held = [_open(state) for _ in range(4)]  # on a, b, a, b
    state.release(held[2].session, 0.0, healthy=True)
    assert state.retire_server("a", 0.0) == [Close(held[2].session)]
    waiting, decisions = state.request(0.0, INFINITY)
    assert decisions == []
    assert state.release(held[0].session, 0.0, healthy=True) == [Close(held[0].session)]
    assert _one(state.release(held[1].session, 0.0, healthy=True), Grant).ticket == waiting


def test_a_session_that_opens_on_a_server_that_is_retired_meanwhile_is_closed_and_its_caller_served_elsewhere():
    state = PoolState(["a"], 2)
    ticket, decisions = state.request(0.0, INFINITY)
    state.retire_server("a", 0.0)
    session, told = state.connected(_one(decisions, Connect).attempt, 0.0)
    assert told == [Close(session)]
    assert _one(state.add_server("b", 2, 0.0), Connect).ticket == ticket


def test_what_was_learned_of_a_server_is_forgotten_when_it_dies():
    state = PoolState(["a"], 8)
    _, decisions = state.request(0.0, INFINITY)
    state.refused(_one(decisions, Connect).attempt, 0.0)
    assert state.servers[0].learned_limit == 0
    state.drop_server("a", 0.0)
    assert _one(state.add_server("a", 8, 0.0), Connect)
    assert state.servers[0].learned_limit == 8


def test_an_attempt_on_a_server_that_dies_is_given_up_and_made_elsewhere():
    state = PoolState(["a", "b"], 1)
    ticket, decisions = state.request(0.0, INFINITY)
    attempt = _one(decisions, Connect).attempt
    assert state.drop_server("a", 0.0) == [Abandon(ticket)]
    assert _one(state.abandoned(attempt, 0.0), Connect).url == "b"


def test_all_who_wait_get_an_error_of_their_own_when_no_server_starts():
    state = PoolState([], 2)
    for _ in range(2):
        state.request(0.0, INFINITY)
    error = ServerStartError("it ended", log_tail="no module named numpy")
    told = [d.error for d in state.fail_waiters(error, 1.0) if isinstance(d, Refuse)]
    assert [str(each) for each in told] == ["it ended\nno module named numpy"] * 2
    assert told[0] is not told[1]
    assert all(isinstance(each, ServerStartError) and each.__cause__ is error for each in told)


def test_a_server_is_not_added_twice():
    state = PoolState(["a"], 2)
    with pytest.raises(ConfigurationError, match="has the server a already"):
        state.add_server("a", 2, 0.0)


def test_chance_shortens_pauses_by_no_more_than_the_jitter():
    back_off = BackOff(first_s=1.0, longest_s=4.0, jitter=0.5)
    assert [back_off.pause_s(failures, 0.0) for failures in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 4.0]
    assert [back_off.pause_s(failures, 1.0) for failures in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 2.0]
