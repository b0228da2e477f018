"""Promises of rubrics as reward functions."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards import RubricReward
from openenv_trl.rubrics import ExponentialDiscountingTrajectoryRubric, Rubric, WeightedSum


class FirstMove(Rubric):
    def forward(self, action: Any, observation: Any) -> float:
        return 1.0 if action["move"] == 0 else 0.0


class Seen(Rubric):
    async def forward(self, action: Any, observation: Any) -> float:
        return 0.5 if observation.text == f"saw {action['move']}" else -9.0


class Rewarded(Rubric):
    def forward(self, action: Any, observation: Any) -> float:
        return observation.reward or 0.0


class LastScore(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        return float(len(trajectory))


@pytest.mark.parametrize(("combine", "value"), [("sum", 1.0), ("mean", 1 / 3), ("last", 0.0)])
def test_steps_are_scored_in_order_and_put_together(combine: Any, value: float, make: Any, score: Any) -> None:
    assert score(RubricReward(FirstMove(), combine=combine), make(rewards=(0, 0, 0))) == [pytest.approx(value)]


def test_the_parts_of_a_rubric_are_named_scores(make: Any, score: Any) -> None:
    class Whole(WeightedSum):
        pass

    whole = Whole([FirstMove(), Seen(), Rewarded()], [0.5, 0.25, 0.25])
    trajectory, logged = make(rewards=(1.0, 3.0)), {}
    (reward,) = score(RubricReward(whole, name="whole"), trajectory, log_metric=logged.__setitem__)
    parts = {name.rpartition("/")[2]: value for name, value in trajectory.rewards.items() if name != "whole"}
    assert reward == pytest.approx(0.5 * 1 + 0.25 * 1.0 + 0.25 * 4)
    assert sorted(parts.values()) == [1.0, 1.0, 4.0]
    assert set(logged) == {f"rewards/whole/{name}" for name in parts}


def test_a_rubric_that_remembers_its_episode_is_begun_anew_for_each_trajectory(make: Any, score: Any) -> None:
    rubric = RubricReward(LastScore(), combine="last")
    assert score(rubric, make(rewards=(0, 0)), make(rewards=(0, 0, 0))) == [2.0, 3.0]
    assert rubric.rubric._trajectory == []  # the user's own object is not touched


def test_an_episode_without_actions_has_no_score(make: Any, score: Any) -> None:
    assert score(RubricReward(FirstMove()), make(rewards=())) == [None]


def test_wrong_uses_are_said() -> None:
    with pytest.raises(ConfigurationError, match="subclass Rubric"):
        RubricReward(lambda action, observation: 1.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="combine='product'"):
        RubricReward(FirstMove(), combine="product")  # type: ignore[arg-type]
