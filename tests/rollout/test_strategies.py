"""Promises of the strategies' settings and of the pure parts behind them: retries, and who is a straggler."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from openenv_trl.rollout import (
    CutStragglers,
    EndReason,
    HedgeSlowCalls,
    NoRetry,
    RetryWithBackOff,
    RolloutLimits,
    RolloutStrategies,
)
from openenv_trl.rollout.strategies.straggler import StragglerWatch

LIMITS = RolloutLimits(max_attempts=4, retry_delay_s=1.0)


def test_a_pause_doubles_up_to_its_longest_and_is_shortened_by_chance() -> None:
    retry = RetryWithBackOff(longest_delay_s=3.0, jitter=0.5)
    pauses = [retry.pause_s(EndReason.SESSION_LOST, attempts, LIMITS, 0.0) for attempts in (1, 2, 3, 4)]
    assert pauses == [1.0, 2.0, 3.0, None]
    assert retry.pause_s(EndReason.SESSION_LOST, 2, LIMITS, 1.0) == 1.0


@settings(deadline=None)
@given(attempts=st.integers(1, 10_000), chance=st.floats(0, 1), jitter=st.floats(0, 1), longest=st.floats(0, 100))
def test_no_pause_is_negative_or_longer_than_the_longest(
    attempts: int, chance: float, jitter: float, longest: float
) -> None:
    retry = RetryWithBackOff(longest_delay_s=longest, jitter=jitter)
    limits = RolloutLimits(max_attempts=attempts + 1, retry_delay_s=0.5)
    pause = retry.pause_s(EndReason.SESSION_LOST, attempts, limits, chance)
    assert pause is not None
    assert 0.0 <= pause <= longest


def test_kinds_of_failures_have_attempts_of_their_own() -> None:
    retry = RetryWithBackOff(attempts={EndReason.STEP_TIMEOUT: 2, EndReason.SESSION_LOST: 99})
    assert retry.pause_s(EndReason.STEP_TIMEOUT, 1, LIMITS, 0) == 1.0
    assert retry.pause_s(EndReason.STEP_TIMEOUT, 2, LIMITS, 0) is None
    assert retry.pause_s(EndReason.SESSION_LOST, 3, LIMITS, 0) is not None
    assert retry.pause_s(EndReason.SESSION_LOST, 4, LIMITS, 0) is None  # the limit bounds all


@pytest.mark.parametrize(
    "reason",
    [EndReason.CONNECT_FAILED, EndReason.CAPACITY, EndReason.GENERATION_FAILED, EndReason.EPISODE_TIMEOUT],
)
def test_what_another_session_cannot_help_is_not_tried_again(reason: EndReason) -> None:
    assert RetryWithBackOff().pause_s(reason, 1, LIMITS, 0) is None
    assert NoRetry().pause_s(EndReason.SESSION_LOST, 1, LIMITS, 0) is None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"retry": {"type": "back_off", "reasons": ["done"]}}, "done: no attempt can follow"),
        ({"refill": {"type": "fresh", "reasons": ["batch_timeout"]}}, "batch_timeout: no attempt can follow"),
        ({"retry": {"type": "sometimes"}}, "'none', 'back_off'"),
        ({"straggler": {"type": "cut", "grace_s": 1, "grace_medians": 1}}, "not both"),
        ({"straggler": {"type": "cut", "after_fraction": 1.0}}, "less than 1"),
        ({"straggler": {"type": "hedge", "afters": 1}}, "afters"),
        ({"tool_errors": {"fail_on": ["invalid_args"]}}, "the model caused these"),
        ({"over_sampling": {"type": "extra", "surplus": "keep"}}, "'cut' or 'finish'"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused_with_what_is_wrong(settings: Any, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RolloutStrategies.model_validate(settings)
    assert told in str(refused.value)


def test_strategies_are_named_by_their_type() -> None:
    made = RolloutStrategies.model_validate({"straggler": {"type": "hedge", "after_s": 2}, "retry": {"type": "none"}})
    assert made == RolloutStrategies(straggler=HedgeSlowCalls(after_s=2), retry=NoRetry())
    assert RolloutStrategies.model_validate(made.model_dump(mode="json")) == made


def test_the_grace_begins_when_enough_have_ended_and_lasts_medians_of_their_time() -> None:
    watch = StragglerWatch(CutStragglers(after_fraction=0.5, grace_medians=2.0), 4)
    assert [watch.started(member, 0.0) for member in range(3)] == [math.inf] * 3
    assert watch.ended(0, 3.0) == {}
    assert watch.ended(1, 5.0) == {2: 5.0 + 2 * 4.0}
    assert watch.started(3, 20.0) == 20.0 + 2 * 4.0  # it was still waiting for its turn: its grace begins with it
    assert watch.ended(2, 13.0) == {}  # the grace is given once


def test_a_grace_in_seconds_is_as_long_as_it_says() -> None:
    watch = StragglerWatch(CutStragglers(after_fraction=0.5, grace_s=7.0), 2)
    watch.started(0, 0.0)
    watch.started(1, 0.0)
    assert watch.ended(0, 100.0) == {1: 107.0}


@settings(deadline=None)
@given(
    count=st.integers(2, 40),
    fraction=st.floats(0.01, 0.99),
    durations=st.lists(st.floats(0, 100), min_size=40, max_size=40),
)
def test_nobody_is_cut_before_the_fraction_has_ended_and_everybody_left_is_after(
    count: int, fraction: float, durations: list[float]
) -> None:
    watch = StragglerWatch(CutStragglers(after_fraction=fraction, grace_s=1.0), count)
    for member in range(count):
        assert watch.started(member, 0.0) == math.inf
    order = sorted(range(count), key=lambda member: durations[member])
    for ended, member in enumerate(order, start=1):
        new = watch.ended(member, durations[member])
        if ended < fraction * count:
            assert new == {}
        elif ended - 1 < fraction * count and ended < count:
            assert set(new) == set(order[ended:])
