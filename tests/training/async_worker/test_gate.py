"""The gate's promises, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import ValidationError

from openenv_trl.training.async_worker import AsyncRolloutSettings
from openenv_trl.training.async_worker.gate import GroupGate, Hold, Loss


class GateMachine(RuleBasedStateMachine):
    """Plays worker and trainer: begins, finishes, takes rows, changes weights."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = AsyncRolloutSettings(
            group_size=3, max_inflight_episodes=7, max_buffered_rows=10, max_staleness=2, rows_per_version=4
        )
        self.gate = GroupGate(self.settings)
        self.number = 0
        self.begun: dict[int, int] = {}
        self.buffer: list[int] = []

    @precondition(lambda self: self.gate.hold(len(self.buffer)) is None)
    @rule()
    def begin(self) -> None:
        self.gate.begin(self.number)
        self.begun[self.number] = self.gate.version
        self.number += 1

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from(sorted(self.begun)))
        oldest = data.draw(st.one_of(st.none(), st.integers(self.begun[group], self.gate.version)))
        rows = data.draw(st.integers(2, 3))
        loss = self.gate.finish(group, oldest, rows, data.draw(st.sampled_from([None, None, Loss.UNSOUND])))
        version = self.begun.pop(group) if oldest is None else oldest
        self.begun.pop(group, None)
        if loss is None:
            assert self.gate.version - version <= self.settings.max_staleness
            self.buffer += [version] * rows

    @precondition(lambda self: self.buffer)
    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        del self.buffer[:count]
        self.gate.rows_taken(count)

    @rule()
    def new_weights(self) -> None:
        overtaken = self.gate.weights_changed(self.gate.version + 1)
        too_old = {group for group, version in self.begun.items() if self.gate.version - version > 2}
        assert set(overtaken) == too_old
        for group in overtaken:
            self.gate.overtaken(group)
            del self.begun[group]
        self.buffer = [version for version in self.buffer if version >= self.gate.oldest_allowed]

    @invariant()
    def rows_always_find_a_place(self) -> None:
        assert len(self.buffer) + 3 * len(self.begun) <= self.settings.max_buffered_rows

    @invariant()
    def a_waiting_trainer_is_never_left_waiting(self) -> None:
        if not self.begun and not self.buffer:
            assert self.gate.hold(0) is None

    @invariant()
    def no_more_is_played_than_allowed(self) -> None:
        assert len(self.begun) <= 2
        assert set(self.gate.inflight) == set(self.begun)


TestGate = GateMachine.TestCase
TestGate.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)


def gate(**changes: object) -> GroupGate:
    return GroupGate(AsyncRolloutSettings(**{"group_size": 4, **changes}))


def test_a_trainer_that_is_behind_holds_groups_back() -> None:
    behind = gate(max_buffered_rows=8)
    assert behind.hold(4) is None
    assert behind.hold(5) is Hold.BUFFER


def test_groups_whose_turn_would_come_too_late_are_not_begun() -> None:
    # Two rows a version, one version of delay allowed: rows 0-1 are trained on at once, rows 2-3 one version later.
    held = gate(rows_per_version=2, max_staleness=1)
    assert held.hold(0) is None
    held.begin(0)
    assert held.hold(0) is Hold.STALENESS
    assert held.finish(0, None, 4) is None
    assert held.hold(4) is Hold.STALENESS
    held.rows_taken(2)
    held.weights_changed(1)
    assert held.hold(2) is Hold.STALENESS, "the last of six rows is two versions away"
    assert held.hold(0) is None


def test_what_weights_overtake_is_named_and_counted() -> None:
    overtaken = gate(max_staleness=0)
    overtaken.weights_changed(1)
    overtaken.begin(7)
    assert overtaken.weights_changed(1) == ()
    assert overtaken.weights_changed(2) == (7,)
    overtaken.overtaken(7)
    assert overtaken.lost[Loss.STALE] == 1
    assert overtaken.lost_in_a_row == 0, "age is no sign of a broken environment"
    overtaken.begin(8)
    assert overtaken.finish(8, 1, 4) is Loss.STALE, "its first token was sampled by the old weights"


def test_groups_lost_in_a_row_are_counted_until_one_is_sound() -> None:
    counted = gate()
    for number in range(3):
        counted.begin(number)
        assert counted.finish(number, None, 0, Loss.UNSOUND) is Loss.UNSOUND
    assert counted.lost_in_a_row == 3
    counted.begin(3)
    counted.finish(3, None, 4)
    assert (counted.lost_in_a_row, counted.handed_over, counted.lost[Loss.UNSOUND]) == (0, 1, 3)


@pytest.mark.parametrize(
    "wrong", [{"group_size": 8, "max_buffered_rows": 7}, {"group_size": 2, "min_scored": 3}, {"groupsize": 2}]
)
def test_settings_that_could_never_hand_over_a_group_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        AsyncRolloutSettings(**wrong)  # type: ignore[arg-type]
