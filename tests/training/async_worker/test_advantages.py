"""Advantages are those of TRL, over the rewards that there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.training.async_worker.advantages import group_advantages, mean_and_deviation, total_rewards

REWARD = st.one_of(st.none(), st.floats(-100, 100))


@given(st.lists(REWARD, min_size=1, max_size=12))
def test_advantages_are_those_of_trl_where_there_is_a_reward(rewards: list[float | None]) -> None:
    found = group_advantages(rewards, "group")
    assert [advantage is None for advantage in found] == [reward is None for reward in rewards]
    scored = np.array([reward for reward in rewards if reward is not None])
    if len(scored) and len(set(scored)) > 1 and scored.std() > 1e-6:
        expected = (scored - scored.mean()) / (scored.std() + 1e-8)
        assert [a for a in found if a is not None] == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-6)


@given(st.lists(REWARD, min_size=1, max_size=12))
def test_a_missing_reward_changes_nothing_for_the_others(rewards: list[float | None]) -> None:
    scored = [reward for reward in rewards if reward is not None]
    for scale in ("group", "none"):
        alone = group_advantages(scored, scale)  # type: ignore[arg-type]
        among = group_advantages(rewards, scale)  # type: ignore[arg-type]
        assert [advantage for advantage in among if advantage is not None] == alone


@given(st.floats(-100, 100), st.integers(2, 9))
def test_equal_rewards_teach_nothing(reward: float, count: int) -> None:
    assert group_advantages([reward] * count, "group") == [0.0] * count
    assert group_advantages([reward] * count, "none") == [0.0] * count


def test_unscaled_advantages_are_the_distances_from_the_mean() -> None:
    assert group_advantages([1.0, None, -1.0, 0.0], "none") == [1.0, None, -1.0, 0.0]


def test_rewards_are_weighed_and_what_is_no_number_does_not_count() -> None:
    totals = total_rewards([[1.0, None, math.nan, math.inf], [2.0, 3.0, None, 1.0]], [1.0, 0.5])
    assert totals == [2.0, 1.5, None, 0.5]
    assert all(math.isnan(value) for value in mean_and_deviation([None, None]))
