"""Stable-Baselines3 trains against a server."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from own_environments import Short
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from openenv_trl.gymnasium import RemoteEnv, RemoteVectorEnv
from openenv_trl.gymnasium.stable_baselines import RemoteVecEnv

Serve = Callable[[str], str]


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_the_check_of_stable_baselines_passes(name: str, serve: Serve) -> None:
    env = RemoteEnv(serve(f"gymnasium:{name}"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="(?s).*symmetric")
        check_env(env)
    env.close()


def test_ppo_learns_cart_pole_on_a_server(cart_pole: str) -> None:
    torch.set_num_threads(1)
    envs = VecMonitor(RemoteVecEnv(cart_pole, 8))
    settings: dict[str, Any] = {"n_steps": 32, "batch_size": 64, "gae_lambda": 0.8, "gamma": 0.98}
    model = PPO("MlpPolicy", envs, learning_rate=2e-3, seed=0, device="cpu", **settings)
    before, _ = evaluate_policy(model, envs, n_eval_episodes=8, deterministic=False)
    model.learn(4000)
    after, _ = evaluate_policy(model, envs, n_eval_episodes=8, deterministic=True)
    assert before < 40
    assert after > 3 * before, f"mean return {before:.0f} before, {after:.0f} after"
    envs.close()


def test_the_vector_steps_as_stable_baselines_own_does(serve: Serve) -> None:
    envs = RemoteVecEnv(serve("gymnasium:own_environments:Short-v0"), 3)
    local = DummyVecEnv([Short] * 3)
    envs.seed(5)
    local.seed(5)
    _assert_same(envs.reset(), local.reset())
    assert [info["left"] for info in envs.reset_infos] == [info["left"] for info in local.reset_infos]
    ended = 0
    for _ in range(20):
        actions = numpy.full((3, 2), 0.5, numpy.float32)
        shown, rewards, dones, infos = envs.step(actions)
        expected, expected_rewards, expected_dones, expected_infos = local.step(actions)
        _assert_same(shown, expected)
        assert (rewards.tolist(), dones.tolist()) == (expected_rewards.tolist(), expected_dones.tolist())
        for info, other in zip(infos, expected_infos, strict=True):
            assert info.keys() == other.keys()
            assert info["TimeLimit.truncated"] == other["TimeLimit.truncated"]
            if "terminal_observation" in other:
                _assert_same(info["terminal_observation"], other["terminal_observation"])
                ended += 1
    assert ended > 3
    envs.close()


def _assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key in expected:
        assert numpy.array_equal(found[key], expected[key])


def test_options_are_given_to_the_next_reset(cart_pole: str) -> None:
    envs = RemoteVecEnv(cart_pole, 2)
    envs.set_options([{"low": 0.04}, {"high": -0.04}])
    first = envs.reset()
    assert (first[0] > 0.04).all()
    assert (first[1] < -0.04).all()
    assert (numpy.abs(envs.reset()) < 0.05).all()
    envs.close()


def test_what_is_only_on_the_server_is_said_to_be_there(cart_pole: str) -> None:
    envs = RemoteVecEnv(cart_pole, 2)
    with pytest.raises(AttributeError, match="on a server, and have no attribute 'length'"):
        envs.get_attr("length")
    with pytest.raises(AttributeError, match="on a server"):
        envs.env_method("jump")
    with pytest.raises(TypeError, match="colour"):
        RemoteVecEnv(cart_pole, 2, colour="red")
    assert envs.env_is_wrapped(gymnasium.Wrapper) == [False, False]
    envs.close()


def test_a_loop_over_gymnasiums_vector_api_runs_as_it_stands(cart_pole: str) -> None:
    """As CleanRL's scripts have it: infos of episodes from Gymnasium's own wrapper, final observations by mask."""
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        RemoteVectorEnv(cart_pole, 4, autoreset_mode=AutoresetMode.SAME_STEP)
    )
    local = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    )
    returns: list[list[float]] = [[], []]
    for found, vector in zip(returns, (envs, local), strict=True):
        vector.reset(seed=0)
        vector.action_space.seed(0)
        for _ in range(60):
            *_, infos = vector.step(vector.action_space.sample())
            if "episode" in infos:
                found += infos["episode"]["r"][infos["_episode"]].tolist()
    assert returns[0] == returns[1]
    assert len(returns[0]) > 4
    envs.close()
