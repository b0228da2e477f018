from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.server.thread_budget import AT_FIRST, ThreadBudget


def test_short_calls_share_a_few_threads() -> None:
    budget = ThreadBudget(1000)
    for _ in range(1000):
        budget.call_returned(0.0001, running=7)
        budget.call_waits()
        budget.call_waits(at_work=AT_FIRST - 1)
    assert budget.threads == AT_FIRST


def test_long_calls_get_a_thread_each() -> None:
    budget = ThreadBudget(1000)
    for _ in range(5):
        budget.call_returned(0.05, running=7)
    for _ in range(500):
        budget.call_waits()
    assert budget.threads == AT_FIRST + 500


def test_all_that_wait_get_a_thread_once_calls_turn_out_to_be_long() -> None:
    budget = ThreadBudget(1000)
    budget.calls_wait(500)
    assert budget.threads == AT_FIRST
    budget.call_returned(0.05, running=7)
    budget.calls_wait(500)
    assert budget.threads == AT_FIRST + 500


def test_calls_that_never_return_do_not_block_the_rest() -> None:
    budget = ThreadBudget(1000)
    budget.call_waits()
    assert budget.threads == AT_FIRST
    for _ in range(7):
        budget.call_waits(at_work=budget.threads)
    assert budget.threads == 1000


def test_threads_go_back_to_a_few_once_calls_are_short_and_few() -> None:
    budget = ThreadBudget(1000)
    budget.call_returned(1.0, running=7)
    for _ in range(100):
        budget.call_waits()
    for _ in range(50):
        budget.call_returned(0.0, running=100)
    assert budget.threads == AT_FIRST + 100
    budget.call_returned(0.0, running=0)
    assert budget.threads == AT_FIRST


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.booleans(), st.floats(0, 10), st.integers(0, 50), st.none() | st.integers(0, 50))),
)
def test_the_budget_stays_within_its_bounds(most: int, events: list[tuple[bool, float, int, int | None]]) -> None:
    budget = ThreadBudget(most)
    for returns, seconds, running, before in events:
        if returns:
            budget.call_returned(seconds, running)
        else:
            budget.call_waits(before)
        assert min(AT_FIRST, most) <= budget.threads <= most
