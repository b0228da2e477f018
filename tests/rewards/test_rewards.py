"""Promises of reward functions, called as TRL calls them: keywords only, a list each."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards import RewardFunction, compose, environment_reward, format_reward, turn_penalty
from openenv_trl.rollout import EndReason, Task, Trajectory, Turn


def make(end_reason: EndReason, rewards: Any = (1.0,), problems: int = 0, turns: int = 1) -> Trajectory:
    played = [Turn(rewards=list(rewards), problems=["bad"] * problems), *[Turn() for _ in range(turns - 1)]]
    return Trajectory(Task([{"role": "user", "content": "x"}]), [1], [2], [1], None, played, end_reason)


def score(function: RewardFunction, *trajectories: Trajectory) -> list[float | None]:
    count = len(trajectories)
    return function(
        prompts=["p"] * count, completions=["c"] * count, completion_ids=[[2]] * count, trajectory=list(trajectories)
    )


@pytest.mark.parametrize("reason", list(EndReason))
def test_every_end_reason_is_scored_by_whose_end_it_was(reason: EndReason) -> None:
    (reward,) = score(environment_reward(unfinished=-1.0), make(reason, (0.25, 0.25)))
    expected = None if reason.is_failure else -0.5 if reason.is_unfinished else 0.5
    assert reward == expected


def test_giving_up_costs_nothing_unless_one_says_so() -> None:
    assert score(environment_reward(), make(EndReason.NO_ACTION, ()), make(EndReason.DONE, (-1.0,))) == [0.0, -1.0]


def test_an_episode_that_was_never_rewarded_is_left_out_unless_leaving_it_has_a_price() -> None:
    silent = [make(EndReason.DONE, (None,)), make(EndReason.MAX_TURNS, (None,))]
    assert score(environment_reward(), *silent) == [None, None]
    assert score(environment_reward(unfinished=-1.0), *silent) == [None, -1.0]


def test_a_sum_is_none_where_a_part_is_none() -> None:
    odd = RewardFunction("odd", lambda trajectory: None if trajectory.reward == 1.0 else 2.0)
    both = compose([environment_reward(), odd], [1.0, 0.5])
    assert score(both, make(EndReason.DONE, (1.0,)), make(EndReason.DONE, (3.0,))) == [None, 4.0]
    assert score(both, make(EndReason.SESSION_LOST, (3.0,))) == [None]


@pytest.mark.parametrize("function", [environment_reward(unfinished=-1.0), format_reward(), turn_penalty()])
def test_a_failed_episode_is_left_out_by_every_function(function: RewardFunction) -> None:
    assert score(function, make(EndReason.SESSION_LOST), make(EndReason.BATCH_TIMEOUT, problems=1)) == [None, None]


def test_format_and_turns_are_scored() -> None:
    assert score(format_reward(), make(EndReason.DONE), make(EndReason.DONE, problems=2)) == [0.0, -0.2]
    assert score(turn_penalty(free_turns=1), make(EndReason.DONE, turns=3), make(EndReason.DONE)) == [-0.02, 0.0]


def test_each_has_a_name_to_be_logged_by() -> None:
    assert environment_reward().__name__ == "environment_reward"
    assert environment_reward(name="blackjack").__name__ == "blackjack"
    assert compose([environment_reward(), turn_penalty()]).__name__ == "environment_reward_turn_penalty"


@pytest.mark.parametrize("columns", [{}, {"trajectory": None}, {"trajectory": ["text"]}])
def test_without_trajectories_one_is_told_which_rollout_func_brings_them(columns: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"rollout_func=openenv_trl\.training\.EnvironmentRollout"):
        environment_reward()(prompts=["p"], completions=["c"], **columns)


def test_weights_must_match() -> None:
    with pytest.raises(ConfigurationError, match="1 functions and 2 weights"):
        compose([environment_reward()], [1.0, 2.0])
    with pytest.raises(ConfigurationError, match="0 functions"):
        compose([])
