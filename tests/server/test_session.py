from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from openenv_trl.errors import SessionLostError, SessionStateError
from openenv_trl.server.session import Decision, Session, SessionEnd, SessionState


def _opened() -> Session:
    session = Session("s1", now=0.0)
    session.opened()
    return session


def test_an_episode_from_opening_to_closed() -> None:
    session = Session("s1", now=1.0)
    assert session.opened() is Decision.GO_ON
    session.begin("reset")
    assert session.finish(2.0, done=False) is Decision.GO_ON
    assert session.state is SessionState.IN_EPISODE
    session.begin("step")
    session.finish(3.0, done=True)
    assert session.state is SessionState.READY
    assert session.request_close() is Decision.CLOSE_ENVIRONMENT
    assert session.closed() is Decision.RELEASE_SLOT
    assert session.state is SessionState.CLOSED


def test_a_failed_opening_releases_the_slot_without_closing_an_environment() -> None:
    session = Session("s1", now=0.0)
    assert session.open_failed() is Decision.RELEASE_SLOT
    assert session.request_close() is Decision.GO_ON


def test_a_close_under_a_running_call_waits_for_its_end() -> None:
    session = _opened()
    session.begin("step")
    assert session.request_close() is Decision.GO_ON
    assert session.finish(1.0, done=False) is Decision.CLOSE_ENVIRONMENT


def test_a_close_while_opening_waits_for_the_environment() -> None:
    session = Session("s1", now=0.0)
    assert session.request_close() is Decision.GO_ON
    assert session.opened() is Decision.CLOSE_ENVIRONMENT


def test_activity_is_reset_and_step_and_counts_what_went_well() -> None:
    session = _opened()
    session.begin("state")
    session.finish(5.0)
    assert session.last_activity_at == 0.0
    session.begin("step")
    session.finish(6.0, done=False)
    session.begin("step")
    session.finish(7.0)
    assert (session.last_activity_at, session.step_count) == (7.0, 1)


def test_a_call_that_fails_leaves_the_episode_where_it_was() -> None:
    session = _opened()
    session.begin("reset")
    session.finish(1.0, done=False)
    session.begin("step")
    session.finish(2.0)
    assert session.state is SessionState.IN_EPISODE


def test_each_refused_call_says_why() -> None:
    session = Session("s1", now=0.0)
    with pytest.raises(SessionStateError, match="s1: cannot step yet: its environment is still being built"):
        session.begin("step")
    session.opened()
    session.begin("reset")
    with pytest.raises(SessionStateError, match="cannot step now: its reset is still running"):
        session.begin("step")
    session.finish(1.0)
    session.request_close()
    with pytest.raises(SessionStateError, match="cannot step any more: it is closing"):
        session.begin("step")
    session.closed()
    with pytest.raises(SessionStateError, match="cannot step any more: it is closed") as caught:
        session.begin("step")
    assert caught.value.session_id == "s1"


def test_a_lost_session_tells_every_later_call_why() -> None:
    session = _opened()
    session.begin("step")
    assert session.lose(SessionEnd.DEADLINE, "its step passed its deadline") is Decision.GO_ON
    assert session.finish(1.0) is Decision.CLOSE_ENVIRONMENT
    for _ in range(2):
        with pytest.raises(SessionLostError, match=r"s1 is lost: its step passed its deadline\. Open a new one"):
            session.begin("state")
        if session.state is SessionState.CLOSING:
            assert session.closed() is Decision.RELEASE_SLOT
    assert session.end is SessionEnd.DEADLINE


def test_an_abandoned_call_frees_the_slot_at_once_and_closes_the_environment_when_it_ends() -> None:
    session = _opened()
    session.begin("step")
    assert session.abandon(SessionEnd.DEADLINE, "its step passed its deadline") is Decision.RELEASE_SLOT
    assert session.state is SessionState.ABANDONED
    with pytest.raises(SessionLostError):
        session.begin("step")
    assert session.request_close() is Decision.GO_ON
    assert session.finish(9.0) is Decision.CLOSE_ENVIRONMENT
    assert session.closed() is Decision.GO_ON


def test_an_abandoned_close_frees_the_slot_once() -> None:
    session = _opened()
    session.request_close()
    assert session.abandon(SessionEnd.CLOSED, "its close does not end") is Decision.RELEASE_SLOT
    assert session.closed() is Decision.GO_ON


def test_the_first_reason_to_end_is_the_reason() -> None:
    session = _opened()
    session.begin("step")
    session.request_close()
    session.lose(SessionEnd.SHUTDOWN, "the server has shut down")
    assert session.end is SessionEnd.CLOSED


def test_each_impossible_event_says_what_was_wrong() -> None:
    session = _opened()
    with pytest.raises(SessionStateError, match="built already"):
        session.opened()
    with pytest.raises(SessionStateError, match="built already"):
        session.open_failed()
    with pytest.raises(SessionStateError, match="none was running"):
        session.finish(1.0)
    with pytest.raises(SessionStateError, match="was not closing"):
        session.closed()


class AnyOrderOfEvents(RuleBasedStateMachine):
    """Events in any order, possible or not: the invariants of the module's docstring hold."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session("s1", now=0.0)
        self.now = 0.0
        self.built = False
        self.running = False
        self.closings = 0
        self.releases = 0
        self.gave_up = False

    def take(self, decision: Decision, *, gave_up: bool = False) -> None:
        if decision is Decision.CLOSE_ENVIRONMENT:
            assert self.built
            assert not self.running
            assert self.gave_up or not self.releases
            self.closings += 1
        if decision is Decision.RELEASE_SLOT:
            assert gave_up or self.closings == self.built
            self.releases += 1

    @rule()
    def opened(self) -> None:
        if self.session.state is SessionState.OPENING:
            self.built = True
            self.take(self.session.opened())
        else:
            with pytest.raises(SessionStateError):
                self.session.opened()

    @rule()
    def open_failed(self) -> None:
        if self.session.state is SessionState.OPENING:
            self.take(self.session.open_failed())
        else:
            with pytest.raises(SessionStateError):
                self.session.open_failed()

    @rule(call=st.sampled_from(["reset", "step", "state"]))
    def begin(self, call: str) -> None:
        if self.session.state in (SessionState.READY, SessionState.IN_EPISODE):
            self.session.begin(call)
            self.running = True
        else:
            with pytest.raises((SessionStateError, SessionLostError)):
                self.session.begin(call)

    @rule(done=st.sampled_from([None, True, False]))
    def finish(self, done: bool | None) -> None:
        self.now += 1
        if self.running:
            self.running = False
            self.take(self.session.finish(self.now, done=done))
        else:
            with pytest.raises(SessionStateError):
                self.session.finish(self.now, done=done)

    @rule()
    def lose(self) -> None:
        self.take(self.session.lose(SessionEnd.IDLE, "no call came"))

    @rule()
    def abandon(self) -> None:
        if self.session.state in (SessionState.BUSY, SessionState.CLOSING):
            self.gave_up = True
            self.take(self.session.abandon(SessionEnd.DEADLINE, "it does not end"), gave_up=True)
        else:
            with pytest.raises(SessionStateError):
                self.session.abandon(SessionEnd.DEADLINE, "it does not end")

    @rule()
    def request_close(self) -> None:
        self.take(self.session.request_close())

    @precondition(lambda self: self.session.state is SessionState.CLOSING)
    @rule()
    def closed(self) -> None:
        self.take(self.session.closed())

    @invariant()
    def one_call_one_closing_one_release(self) -> None:
        assert self.running == (self.session.state in (SessionState.BUSY, SessionState.ABANDONED))
        assert self.closings <= 1
        assert self.releases == (self.gave_up or self.session.state is SessionState.CLOSED)
        assert self.session.holds_slot == (not self.releases)


TestAnyOrderOfEvents = AnyOrderOfEvents.TestCase
