"""What a server shows is what the environment shows in this process, to the last bit, on both wires."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import pytest
from gymnasium.utils.env_checker import data_equivalence
from own_environments import Everything

from openenv_trl.client import GenericEnvClient
from openenv_trl.errors import ActionValidationError
from openenv_trl.gymnasium import RemoteEnv

HERE = Path(__file__).parent
MODULES = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
REGISTERED = sorted(name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(MODULES))
WIRES = ("native", "openenv")


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Servers of all of Gymnasium's classic control and toy text environments, by name."""
    command = [sys.executable, "-W", "ignore", str(HERE / "serve_all.py"), *REGISTERED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(timeout=30)


def _same(one: Any, other: Any) -> bool:
    """Whether two observations are equal to the last bit; a number may be of Python's type or of numpy's."""
    if isinstance(one, (int, numpy.integer)) and isinstance(other, (int, numpy.integer)):
        return int(one) == int(other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return data_equivalence(one, other, exact=True)


def _assert_same_play(remote: Any, local: Any, *, seeds: tuple[int | None, ...], steps: int) -> int:
    """Play both with the same seeds and actions. Returns the number of steps taken."""
    assert remote.action_space == local.action_space
    assert remote.observation_space == local.observation_space
    assert remote.observation_space.dtype == local.observation_space.dtype
    local.action_space.seed(11)
    taken = 0
    for seed in seeds:
        shown, _ = remote.reset(seed=seed)
        expected, _ = local.reset(seed=seed)
        assert _same(shown, expected)
        for _ in range(steps):
            action = local.action_space.sample()
            shown, reward, terminated, truncated, _ = remote.step(action)
            expected, *outcome, _ = local.step(action)
            assert _same(shown, expected)
            assert [reward, terminated, truncated] == outcome
            taken += 1
            if terminated or truncated:
                break
    return taken


def test_the_environments_are_all_there() -> None:
    names = {"CartPole", "MountainCar", "MountainCarContinuous", "Pendulum", "Acrobot"}
    names |= {"Blackjack", "FrozenLake", "FrozenLake8x8", "CliffWalking", "CliffWalkingSlippery", "Taxi"}
    assert names <= {name.partition("-v")[0] for name in REGISTERED}


@pytest.mark.parametrize("name", REGISTERED)
def test_classics_play_as_in_this_process_on_both_wires(name: str, addresses: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that have a newer version
        local = gymnasium.make(name)
    for wire in WIRES:
        remote = RemoteEnv(addresses[name], wire=wire)  # type: ignore[arg-type]
        assert _assert_same_play(remote, local, seeds=(5, None, 2**40, None), steps=40)
        remote.close()


def test_a_cut_by_time_is_told_as_truncation(addresses: dict[str, str]) -> None:
    remote = RemoteEnv(addresses["Pendulum-v1"])
    remote.reset(seed=0)
    ends = [remote.step(numpy.zeros(1, numpy.float32))[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(False, True)]
    remote.close()


def test_infos_are_the_environments_own(addresses: dict[str, str]) -> None:
    local = gymnasium.make("Taxi-v4")
    for wire in WIRES:
        remote = RemoteEnv(addresses["Taxi-v4"], wire=wire)  # type: ignore[arg-type]
        _, expected = local.reset(seed=3)
        _, info = remote.reset(seed=3)
        assert info.keys() == expected.keys()
        assert info["prob"] == expected["prob"]
        assert numpy.asarray(info["action_mask"]).tolist() == expected["action_mask"].tolist()
        # JSON has no arrays; the native wire keeps them, and they are this side's own.
        assert isinstance(info["action_mask"], numpy.ndarray if wire == "native" else list)
        info["action_mask"][0] = 0
        remote.close()


def test_a_process_for_each_session_plays_the_same(serve: Callable[[str], str]) -> None:
    local = gymnasium.make("CartPole-v1")
    remote = RemoteEnv(serve("gymnasium:CartPole-v1?execution=process"))
    assert _assert_same_play(remote, local, seeds=(5, None), steps=30) > 20
    with pytest.raises(ActionValidationError, match="action=9 is outside"):
        remote.step(9)
    remote.close()


def test_a_model_plays_by_the_tool_and_sees_words(serve: Callable[[str], str]) -> None:
    target = 'gymnasium:FrozenLake-v1?is_slippery=false&render_mode=ansi&action_names=["left","down","right","up"]'
    with GenericEnvClient(serve(target)).sync() as client:
        shown = client.reset(seed=0).observation["message"]
        assert "[S]FFF" in shown  # the player, on the start
        (tool,) = client.list_tools()
        assert tool.input_schema["properties"]["action"] == {"type": "string", "enum": ["left", "down", "right", "up"]}
        for name in ("down", "down", "right", "right", "down", "right"):
            result = client.step({"type": "call_tool", "tool_name": "act", "arguments": {"action": name}})
        assert (result.reward, result.done) == (1.0, True)
        assert result.observation["message"].endswith(" Reward: 1. The episode is over.")


@pytest.mark.parametrize("wire", WIRES)
def test_every_kind_of_space_arrives_as_it_is(wire: Any, serve: Callable[[str], str]) -> None:
    remote = RemoteEnv(serve("gymnasium:own_environments:Everything-v0?render_mode=rgb_array"), wire=wire)
    assert _assert_same_play(remote, Everything(), seeds=(1, None), steps=4) == 8
    remote.close()


@pytest.mark.parametrize("wire", WIRES)
def test_ataris_pictures_are_equal_to_the_last_pixel(wire: Any, serve: Callable[[str], str]) -> None:
    local = gymnasium.make("ale_py:ALE/Pong-v5")
    remote = RemoteEnv(serve("gymnasium:ale_py:ALE/Pong-v5?render_mode=rgb_array"), wire=wire, render_mode="rgb_array")
    assert _assert_same_play(remote, local, seeds=(5,), steps=6) == 6
    frame = remote.render()
    assert (frame == remote.step(0)[0]).mean() > 0.9
    assert (frame.shape, frame.dtype) == ((210, 160, 3), numpy.uint8)
    remote.close()
