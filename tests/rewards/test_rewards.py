"""Promises of reward functions, called as TRL calls them: keywords only, a list each."""

from __future__ import annotations

import math
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards import (
    RewardFunction,
    by_environment,
    compose,
    discounted_reward,
    environment_reward,
    format_reward,
    gate,
    length_reward,
    turn_penalty,
)
from openenv_trl.rollout import EndReason, Trajectory


@pytest.mark.parametrize("reason", list(EndReason))
def test_every_end_reason_is_scored_by_whose_end_it_was(reason: EndReason, make: Any, score: Any) -> None:
    (reward,) = score(environment_reward(unfinished=-1.0), make(reason, (0.25, 0.25)))
    expected = None if reason.is_failure else -0.5 if reason.is_unfinished else 0.5
    assert reward == expected


def test_giving_up_costs_nothing_unless_one_says_so(make: Any, score: Any) -> None:
    assert score(environment_reward(), make(EndReason.NO_ACTION, ()), make(EndReason.DONE, (-1.0,))) == [0.0, -1.0]


def test_an_episode_that_was_never_rewarded_is_left_out_unless_leaving_it_has_a_price(make: Any, score: Any) -> None:
    silent = [make(EndReason.DONE, (None,)), make(EndReason.MAX_TURNS, (None,))]
    assert score(environment_reward(), *silent) == [None, None]
    assert score(environment_reward(unfinished=-1.0), *silent) == [None, -1.0]


def test_a_sum_is_none_where_a_part_is_none(make: Any, score: Any) -> None:
    odd = RewardFunction("odd", lambda trajectory: None if trajectory.reward == 1.0 else 2.0)
    both = compose([environment_reward(), odd], [1.0, 0.5])
    assert score(both, make(EndReason.DONE, (1.0,)), make(EndReason.DONE, (3.0,))) == [None, 4.0]
    assert score(both, make(EndReason.SESSION_LOST, (3.0,))) == [None]


@pytest.mark.parametrize("function", [environment_reward(unfinished=-1.0), format_reward(), turn_penalty()])
def test_a_failed_episode_is_left_out_by_every_function(function: RewardFunction, make: Any, score: Any) -> None:
    assert score(function, make(EndReason.SESSION_LOST), make(EndReason.BATCH_TIMEOUT, problems=1)) == [None, None]


def test_format_and_turns_are_scored(make: Any, score: Any) -> None:
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


def test_a_gate_lets_a_reward_count_only_where_its_condition_holds(make: Any, score: Any) -> None:
    brief = gate(environment_reward(), turn_penalty(per_turn=-0.5), at_least=1.0, otherwise=-2.0)
    assert score(brief, make(rewards=(1.0,)), make(rewards=(0.0,)), make(rewards=(None,))) == [-0.5, -2.0, None]


def test_each_environment_of_a_mixed_run_has_a_reward_of_its_own(make: Any, score: Any) -> None:
    mixed = by_environment({"cards": environment_reward(), "code": RewardFunction("passed", lambda _: 7.0)})
    played = [make(environment=name) for name in ("cards", "code", "chess")]
    assert score(mixed, *played) == [1.0, 7.0, None]
    with pytest.raises(ConfigurationError, match="at least one"):
        by_environment({})


def test_every_part_of_a_tree_is_kept_by_its_path_and_logged(make: Any, score: Any) -> None:
    logged: dict[str, float] = {}
    tree = compose(
        [gate(environment_reward(), format_reward(), at_least=0.5), turn_penalty()], [1.0, 2.0], name="whole"
    )
    good, bad = make(problems=1), make(rewards=(0.0,))
    rewards = score(tree, good, bad, make(EndReason.SESSION_LOST), log_metric=logged.__setitem__)
    assert rewards == [pytest.approx(-0.12), pytest.approx(-0.02), None]
    path = "format_reward_if_environment_reward"
    assert good.rewards == {
        "whole": pytest.approx(-0.12),
        f"whole/{path}": -0.1,
        f"whole/{path}/environment_reward": 1.0,
        f"whole/{path}/format_reward": -0.1,
        "whole/turn_penalty": -0.01,
    }
    assert logged[f"rewards/whole/{path}/environment_reward"] == 0.5  # the failed one is not in the mean
    assert "rewards/whole" not in logged  # which TRL logs itself


def test_a_part_is_scored_once_for_each_trajectory(make: Any, score: Any) -> None:
    asked: list[Any] = []
    part = RewardFunction("part", lambda trajectory: asked.append(trajectory) or 1.0)
    score(compose([gate(part, turn_penalty()), turn_penalty()]), make(), make())
    assert len(asked) == 2


def test_parts_of_one_name_are_told_apart(make: Any, score: Any) -> None:
    trajectory = make(turns=4)
    score(compose([turn_penalty(per_turn=-1), turn_penalty(per_turn=-2)], name="both"), trajectory)
    assert trajectory.rewards == {"both": -12.0, "both/turn_penalty": -4.0, "both/turn_penalty_2": -8.0}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_left_out_and_said_once(
    number: float, make: Any, score: Any, caplog: Any
) -> None:
    odd = RewardFunction("odd", lambda _: number)
    assert score(odd, make(), make()) == [None, None]
    assert caplog.text.count("'odd' gave") == 1
    assert score(compose([odd, turn_penalty()]), make()) == [None]


@pytest.mark.parametrize("value", ["1.0x", [1.0], {}, object()])
def test_what_is_no_number_is_the_functions_fault(value: Any, make: Any, score: Any) -> None:
    with pytest.raises(ConfigurationError, match="'wrong' must return a number or None"):
        score(RewardFunction("wrong", lambda _: value), make())


def test_a_function_that_raises_is_named(make: Any, score: Any) -> None:
    with pytest.raises(ConfigurationError, match="'broken' raised ZeroDivisionError"):
        score(compose([RewardFunction("broken", lambda _: 1 / 0), turn_penalty()]), make())


def test_the_models_own_tokens_are_what_length_costs(make: Any, score: Any) -> None:
    length = length_reward(max_tokens=8, free_tokens=4)
    long = [make() for _ in range(4)]
    for trajectory, own in zip(long, (4, 6, 8, 20), strict=True):
        trajectory.completion_ids, trajectory.mask = [2] * (own + 50), [1] * own + [0] * 50
    assert score(length, *long) == [0.0, -0.5, -1.0, -1.0]
    with pytest.raises(ConfigurationError, match="free_tokens=9"):
        length_reward(max_tokens=8, free_tokens=9)


def test_sooner_is_worth_more_under_a_discount(make: Any, score: Any) -> None:
    halved = discounted_reward(gamma=0.5, unfinished=-1.0)
    early, late, left = make(rewards=(1.0, 0.0)), make(rewards=(None, 1.0)), make(EndReason.MAX_TURNS, (1.0, 1.0))
    assert score(halved, early, late, left, make(rewards=(None,))) == [1.0, 0.5, 0.5, None]
    with pytest.raises(ConfigurationError, match="gamma=2"):
        discounted_reward(gamma=2)


async def async_length(trajectory: Trajectory) -> float:
    await anyio.lowlevel.checkpoint()
    return float(len(trajectory.turns))


class AsyncObject:
    async def __call__(self, trajectory: Trajectory) -> float:
        return await async_length(trajectory)


@pytest.mark.parametrize("waits", [async_length, AsyncObject()])
def test_functions_that_wait_are_asked_for_all_trajectories_at_once(waits: Any, make: Any, score: Any) -> None:
    assert score(compose([RewardFunction("turns", waits), turn_penalty()]), make(turns=2), make()) == [1.98, 0.99]
    together = anyio.Event
    begun: list[Any] = []

    async def waits_for_the_other(trajectory: Trajectory) -> float:
        event = together()
        begun.append(event)
        if len(begun) == 2:
            for each in begun:
                each.set()
        with anyio.fail_after(30):
            await event.wait()
        return 1.0

    assert score(RewardFunction("meets", waits_for_the_other), make(), make()) == [1.0, 1.0]


def test_a_function_that_waits_without_saying_so_is_told_what_to_write(make: Any, score: Any) -> None:
    with pytest.raises(ConfigurationError, match="async def"):
        score(RewardFunction("hidden", lambda trajectory: async_length(trajectory)), make())


def test_an_error_of_a_function_that_waits_is_that_error_alone(make: Any, score: Any) -> None:
    async def breaks(trajectory: Trajectory) -> float:
        raise ValueError("no")

    with pytest.raises(ConfigurationError, match="'breaks' raised ValueError"):
        score(RewardFunction("breaks", breaks), make(), make())
