from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from openenv_trl.errors import ConfigurationError, SessionCapacityError, SessionStateError
from openenv_trl.server.capacity import CapacityLedger, ConcurrencyConfig


def test_the_last_slot_is_given_and_no_more() -> None:
    ledger = CapacityLedger(2)
    ledger.reserve("a")
    ledger.reserve("b")
    with pytest.raises(SessionCapacityError) as caught:
        ledger.reserve("c")
    assert (caught.value.active_sessions, caught.value.max_sessions) == (2, 2)
    ledger.release("a")
    ledger.reserve("c")
    assert ledger.status.is_at_capacity


def test_a_slot_is_released_once() -> None:
    ledger = CapacityLedger(2)
    ledger.reserve("a")
    ledger.release("a")
    with pytest.raises(SessionStateError, match="holds no slot"):
        ledger.release("a")


def test_a_session_takes_one_slot() -> None:
    ledger = CapacityLedger(2)
    ledger.reserve("a")
    with pytest.raises(SessionStateError, match="already"):
        ledger.reserve("a")


def test_a_server_without_room_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs room"):
        CapacityLedger(0)
    with pytest.raises(ValidationError):
        ConcurrencyConfig(max_concurrent_envs=0)


@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef"))))
def test_held_slots_never_pass_the_limit(limit: int, events: list[tuple[bool, str]]) -> None:
    ledger = CapacityLedger(limit)
    held: set[str] = set()
    for reserve, session_id in events:
        try:
            if reserve:
                ledger.reserve(session_id)
                held.add(session_id)
            else:
                ledger.release(session_id)
                held.remove(session_id)
        except (SessionCapacityError, SessionStateError):
            pass
        assert ledger.status.active_sessions == len(held) <= limit
        assert ledger.status.available_slots == limit - len(held)
