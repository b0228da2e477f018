from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from openenv_trl.errors import SessionCapacityError
from openenv_trl.server.capacity import CapacityLedger
from openenv_trl.server.waiting_line import WaitingLine


def test_first_come_first_served() -> None:
    line = WaitingLine(10)
    assert all(line.join(ticket, deadline=9.0) for ticket in "abc")
    assert line.first(0.0) == "a"
    line.serve("a")
    assert line.first(0.0) == "b"
    assert not line.leave("b")
    assert line.first(0.0) == "c"


def test_nobody_is_served_after_their_deadline() -> None:
    line = WaitingLine(10)
    line.join("impatient", deadline=1.0)
    line.join("patient", deadline=9.0)
    assert line.first(1.0) == "patient"
    assert not line.leave("impatient")


def test_one_that_leaves_with_a_slot_is_told_so_once() -> None:
    line = WaitingLine(10)
    line.join("a", deadline=9.0)
    line.serve("a")
    assert line.leave("a")
    assert not line.leave("a")


def test_a_full_line_takes_nobody() -> None:
    line = WaitingLine(1)
    assert line.join("a", deadline=9.0)
    assert not line.join("b", deadline=9.0)
    assert line.first(0.0) == "a"


class SlotsAndALine(RuleBasedStateMachine):
    """Clients come, wait, are served, give up and end, in any order, as `Admission` has them do it."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = CapacityLedger(2)
        self.line = WaitingLine(3)
        self.now = 0.0
        self.clients = 0
        self.waiting: list[tuple[str, float]] = []
        self.given: set[str] = set()
        self.holding: set[str] = set()

    def serve_the_line(self) -> None:
        while (ticket := self.line.first(self.now)) is not None:
            try:
                self.ledger.reserve(ticket)
            except SessionCapacityError:
                return
            self.line.serve(ticket)
            in_time = [each for each in self.waiting if each[1] > self.now]
            assert in_time[0][0] == ticket, "overtaken"
            self.waiting = in_time[1:]
            self.given.add(ticket)

    @rule(patience=st.integers(1, 5))
    def come(self, patience: int) -> None:
        self.clients += 1
        ticket = f"client {self.clients}"
        if len(self.line) == 0:
            try:
                self.ledger.reserve(ticket)
            except SessionCapacityError:
                pass
            else:
                self.holding.add(ticket)
                return
        joined = self.line.join(ticket, self.now + patience)
        if joined:
            self.waiting.append((ticket, self.now + patience))

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        self.serve_the_line()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(gone)
        assert not self.line.leave(gone[0])
        self.serve_the_line()

    @precondition(lambda self: self.given)
    @rule(data=st.data(), cancelled=st.booleans())
    def take_what_was_given(self, data: st.DataObject, cancelled: bool) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.given)))
        self.given.remove(ticket)
        assert self.line.leave(ticket)
        if cancelled:
            self.ledger.release(ticket)
            self.serve_the_line()
        else:
            self.holding.add(ticket)

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.holding)))
        self.holding.remove(ticket)
        self.ledger.release(ticket)
        self.serve_the_line()

    @invariant()
    def no_slot_is_lost_or_given_twice(self) -> None:
        assert self.ledger.status.active_sessions == len(self.holding) + len(self.given) <= 2
        assert len(self.line) <= 3

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        if not self.ledger.status.is_at_capacity:
            assert not [each for each in self.waiting if each[1] > self.now]


TestSlotsAndALine = SlotsAndALine.TestCase


def test_the_length_counts_those_who_wait() -> None:
    line = WaitingLine(5)
    line.join("a", 1.0)
    line.join("b", 1.0)
    line.serve("a")
    assert len(line) == 1
    with pytest.raises(KeyError):
        line.serve("a")
