"""What cannot be right is refused before anything is sent or served, in words, and nothing moves for it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.gymnasium import GymnasiumEnvironment, RemoteEnv, RemoteVectorEnv
from openenv_trl.gymnasium.chosen_action import chosen_action
from openenv_trl.gymnasium.serving import app_for
from openenv_trl.gymnasium.space_values import write_value

Serve = Callable[[str], str]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("CartPole-v1?execution=proces", "execution='proces': give one of 'auto', 'loop', 'thread', 'process'"),
        ("CartPole-v1?render_mode=anzi", "render_mode='anzi': 'CartPole-v1' renders 'human', 'rgb_array'"),
        ("FrozenLake-v1?render_mode=anzi", "'FrozenLake-v1' renders 'human', 'ansi', 'rgb_array'"),
        ("CartPole-v1?render_mode=7", "render_mode=7 is no text"),
    ],
)
def test_a_misspelt_way_of_serving_is_refused_with_the_choices(target: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        app_for(target)
    command = [sys.executable, "-m", "openenv_trl.cli", "serve", f"gymnasium:{target}", "--port", "0"]
    served = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert served.returncode != 0
    assert re.search(says, " ".join(served.stderr.split()))
    assert "Traceback" not in served.stderr


@pytest.mark.parametrize("mode", ["rgb_array", "rgb_array_list", "human", None])
def test_the_modes_that_gymnasium_takes_are_taken(mode: str | None) -> None:
    made = GymnasiumEnvironment.of("CartPole-v1", render_mode=mode, execution="thread")
    assert made.EXECUTION == "thread"


def test_an_environment_that_names_no_modes_is_served_with_any() -> None:
    class Bare(gymnasium.Env[int, int]):
        metadata: ClassVar[dict[str, Any]] = {}
        action_space = observation_space = spaces.Discrete(2)

        def __init__(self, render_mode: str) -> None:
            self.render_mode = render_mode

    assert GymnasiumEnvironment.of(Bare, render_mode="holograms").env_id == "Bare"


@pytest.mark.parametrize(
    ("space", "value", "says"),
    [
        (spaces.Discrete(2), "left", r"action='left' is no integer\. The action space is Discrete\(2\)"),
        (spaces.Discrete(2), 0.5, r"action=0.5 is no integer"),
        (spaces.Discrete(2), -1, "give an integer from 0 to 1"),
        (spaces.MultiDiscrete([2, 3]), [0.5, 1.0], "no int64"),
        (spaces.MultiDiscrete([2, 3]), [0], r"has the shape \(1,\)"),
        (spaces.Box(-1, 1, (2,)), [0.5, 2.0], r"action\[1\]=2.0 is out of bounds"),
        (spaces.Box(-1, 1, (2,)), "up", "no array of numbers"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 1}, "no value of Dict"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]), (1,), "no value of Tuple"),
        (spaces.OneOf([spaces.Discrete(2)]), (3, 1), "no value of OneOf"),
        (spaces.Text(3), 5, "action=5 is no text"),
    ],
)
def test_an_action_that_its_space_does_not_contain_is_refused(space: Any, value: Any, says: str) -> None:
    with pytest.raises(ActionValidationError, match=says):
        chosen_action(space, value)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5, start=-2),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (2, 2)),
        spaces.Dict({"a": spaces.Box(0, 9, (2,), numpy.int64), "b": spaces.Text(4)}),
        spaces.Sequence(spaces.Discrete(3), stack=True),
        spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (3,))]),
        spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    ],
)
def test_every_action_of_a_space_is_taken_as_it_is(space: Any) -> None:
    space.seed(3)
    for _ in range(20):
        action = space.sample()
        chosen = chosen_action(space, action)
        assert space.contains(chosen)
        assert data_equivalence(write_value(space, chosen), write_value(space, action), exact=True)


def test_lists_and_truth_values_do_for_arrays_and_numbers() -> None:
    assert chosen_action(spaces.Discrete(2), numpy.bool_(True)) == 1
    assert chosen_action(spaces.Discrete(2), numpy.int32(1)) == 1
    assert chosen_action(spaces.Box(-1, 1, (2,)), [0, 0.5]).dtype == numpy.float32


def test_a_refused_action_leaves_the_episode_as_it_was(cart_pole: str, serve: Serve) -> None:
    env, untouched = RemoteEnv(cart_pole), RemoteEnv(cart_pole)
    env.reset(seed=1)
    untouched.reset(seed=1)
    for wrong in ("left", None, 0.5, [0, 1]):
        with pytest.raises(ActionValidationError, match=r"Discrete\(2\)"):
            env.step(wrong)
    assert env.step(1)[0].tolist() == untouched.step(1)[0].tolist()
    env.close()
    untouched.close()
    table = RemoteEnv(serve("environments/blackjack_env"))
    table.reset(seed=1)
    for wrong in (-1, 5, "hit"):
        with pytest.raises(ActionValidationError, match=r"Discrete\(2\)"):
            table.step(wrong)
    table.close()


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ([0, 1], "2 actions for 4 environments: give one for each"),
        ([0] * 5, "5 actions for 4 environments"),
        (numpy.array([0, 1, 7, 0]), r"Environment 2: action=7 is outside of Discrete\(2\)"),
        ([0, 1, "left", 0], "Environment 2: action='left' is no integer"),
        (1, "cannot be taken apart into those of 4 environments"),
    ],
)
def test_actions_that_cannot_all_be_taken_move_no_session_of_a_vector(actions: Any, says: str, cart_pole: str) -> None:
    envs, untouched = RemoteVectorEnv(cart_pole, 4), RemoteVectorEnv(cart_pole, 4)
    envs.reset(seed=1)
    untouched.reset(seed=1)
    with pytest.raises(ActionValidationError, match=f"{says}.*No environment moved"):
        envs.step(actions)
    right = [0, 1, 1, 0]
    assert envs.step(right)[0].tolist() == untouched.step(numpy.array(right))[0].tolist()
    envs.close()
    untouched.close()


def test_servers_of_different_environments_are_no_vector(cart_pole: str, serve: Serve) -> None:
    other = serve("environments/blackjack_env")
    fields = ["player_sum", "dealer_card", "usable_ace"]
    with pytest.raises(ConfigurationError, match=f"at {other} is not like the one at {cart_pole}: its obs"):
        RemoteVectorEnv([cart_pole, other], num_envs=2)
    lake = serve("gymnasium:FrozenLake-v1")
    with pytest.raises(ConfigurationError, match=rf"at {lake} is not like the one at {cart_pole}: its action space is"):
        RemoteVectorEnv([cart_pole, cart_pole, lake], num_envs=3)
    with pytest.raises(ConfigurationError, match=rf"at {cart_pole} is not like the one at {other}: its "):
        RemoteVectorEnv([other, cart_pole], num_envs=2, fields=fields)
    RemoteVectorEnv([cart_pole, other], num_envs=1).close()  # the second is not needed
