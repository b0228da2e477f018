"""`RemoteEnv`: a ``gymnasium.Env`` over servers of Gymnasium environments, and over others."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import Any

import cloudpickle
import gymnasium
import numpy
import psutil
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from openenv_trl.client.background import background_portal
from openenv_trl.client.inquiry import fetch_capacity
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    ConnectionFailedError,
    EnvironmentExecutionError,
    OpenEnvError,
    ProtocolError,
    SessionLostError,
    SessionStateError,
)
from openenv_trl.gymnasium import RemoteEnv
from openenv_trl.providers import ProcessProvider

Serve = Callable[[str], str]

_MEANT = ("not having a spec", "symmetric and normalized space", "value is -?infinity")  # other people's spaces


def _assert_passes_check(env: RemoteEnv) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in _MEANT:
            warnings.filterwarnings("ignore", message=f"(?s).*({text})")
        check_env(env)


@pytest.mark.parametrize("wire", ["native", "openenv"])
@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Taxi-v4"])
def test_gymnasiums_own_check_passes(name: str, wire: Any, serve: Serve) -> None:
    env = RemoteEnv(serve(f"gymnasium:{name}"), wire=wire)
    _assert_passes_check(env)
    env.close()


@pytest.mark.parametrize("arguments", [{}, {"fields": ["player_sum", "dealer_card", "usable_ace"]}])
def test_gymnasiums_own_check_passes_on_blackjack_whose_spaces_are_derived(
    arguments: dict[str, Any], serve: Serve
) -> None:
    env = RemoteEnv(serve("environments/blackjack_env"), **arguments)
    assert env.action_space == spaces.Discrete(2)
    _assert_passes_check(env)
    env.close()


def test_a_seed_decides_the_later_episodes_too_where_the_server_knows_nothing_of_gymnasium(serve: Serve) -> None:
    def hands(seed: int) -> list[Any]:
        env = RemoteEnv(serve("environments/blackjack_env"))
        found = [env.reset(seed=seed)[0]["message"], *(env.reset()[0]["message"] for _ in range(5))]
        env.close()
        return found

    assert hands(1) == hands(1) != hands(2)
    assert len(set(hands(1))) > 3


def test_blackjack_pays_what_the_server_pays(serve: Serve) -> None:
    env = RemoteEnv(serve("environments/blackjack_env"), fields=["message"])
    assert env.observation_space.contains(env.reset(seed=1)[0])
    shown, reward, terminated, truncated, info = env.step(1)  # "stand", the second of its choices
    assert "The dealer has" in shown
    assert (reward, terminated, truncated, info) == (1.0, True, False, {})
    with pytest.raises(EnvironmentExecutionError, match="This hand is over"):
        env.step(1)
    env.close()


def test_a_field_without_bounds_is_named_with_what_to_pass(serve: Serve) -> None:
    url = serve("environments/openspiel_env")
    with pytest.raises(ConfigurationError, match=r"action.action_id is a number without bounds.*Pass action_space="):
        RemoteEnv(url)
    with pytest.raises(ConfigurationError, match=r"has no field 'board'. It has info_state, legal_actions"):
        RemoteEnv(url, action_space=spaces.Discrete(3), fields=["board"])
    with pytest.raises(ConfigurationError, match="to_observation= needs observation_space="):
        RemoteEnv(url, action_space=spaces.Discrete(3), to_observation=lambda fields: fields["info_state"])


def test_spaces_that_are_given_are_used(serve: Serve) -> None:
    url = serve("environments/openspiel_env")
    pixels = spaces.Box(0, 1, (50,), numpy.float32)
    by_field = RemoteEnv(
        url, action_space=spaces.Discrete(3), observation_space=pixels, fields=["info_state"], missing_reward=0.0
    )
    _assert_passes_check(by_field)
    by_function = RemoteEnv(
        url,
        action_space=spaces.MultiBinary(1),
        to_action=lambda bits: {"action_id": 2 * int(bits[0])},
        observation_space=spaces.Box(0, 1, (10, 5), numpy.float32),
        to_observation=lambda fields: numpy.array(fields["info_state"], numpy.float32).reshape(10, 5),
    )
    seen, _ = by_function.reset(seed=1)
    assert seen.shape == (10, 5)
    assert seen.ravel().tolist() == by_field.reset(seed=1)[0].tolist()
    total, over = 0.0, False
    while not over:
        seen, reward, over, _, _ = by_function.step(numpy.array([1], numpy.int8))
        total += reward
    assert total in (-1.0, 1.0)
    by_field.close()
    by_function.close()


def test_a_step_without_a_reward_raises_unless_told_what_that_means(serve: Serve) -> None:
    say = {"to_action": lambda text: {"type": "call_tool", "tool_name": "echo_message", "arguments": {"message": text}}}
    given: dict[str, Any] = {
        "action_space": spaces.Text(5),
        "observation_space": spaces.Text(1000),
        "to_observation": lambda fields: str((fields.get("result") or {}).get("data", "")),
        **say,
    }
    url = serve("environments/echo_env")
    env = RemoteEnv(url, **given)
    env.reset()
    with pytest.raises(ProtocolError, match=r"none is made up. Pass missing_reward=0.0"):
        env.step("hello")
    env.close()
    env = RemoteEnv(url, **given, missing_reward=0.25)
    env.reset()
    assert env.step("hello")[:2] == ("hello", 0.25)
    env.close()


def test_an_action_outside_of_the_space_raises_and_the_episode_stands(cart_pole: str) -> None:
    env, untouched = RemoteEnv(cart_pole), RemoteEnv(cart_pole)
    env.reset(seed=1)
    untouched.reset(seed=1)
    with pytest.raises(ActionValidationError, match=r"action=5 is outside of Discrete\(2\)"):
        env.step(5)
    assert env.step(1)[0].tolist() == untouched.step(1)[0].tolist()
    env.close()
    untouched.close()


def test_a_step_after_the_end_raises(serve: Serve) -> None:
    env = RemoteEnv(serve("gymnasium:Blackjack-v1"))
    env.reset(seed=1)
    assert env.step(0)[2]
    with pytest.raises(EnvironmentExecutionError, match=r"This episode is over\. Call reset"):
        env.step(0)
    env.reset()
    env.close()


def test_what_the_environment_raises_is_raised_and_the_session_goes_on(serve: Serve) -> None:
    env = RemoteEnv(serve("gymnasium:own_environments:Slow-v0"))
    env.reset()
    with pytest.raises(EnvironmentExecutionError, match="the motor is stuck"):
        env.step(2)
    assert env.step(0)[0] == 1
    env.close()


def test_close_frees_the_slot_and_a_closed_environment_says_so(serve: Serve) -> None:
    url = serve("gymnasium:CartPole-v1?max_episode_steps=9")  # where no other test left a session to the collector

    async def sessions() -> int:
        return (await fetch_capacity(url))["active_sessions"]

    before = background_portal().call(sessions)
    env = RemoteEnv(url)
    assert background_portal().call(sessions) == before, "spaces are known without a session"
    env.reset()
    assert background_portal().call(sessions) == before + 1
    env.close()
    env.close()
    assert background_portal().call(sessions) == before
    with pytest.raises(SessionStateError, match="closed"):
        env.step(0)


def test_a_lost_session_raises_and_stays_lost() -> None:
    provider = ProcessProvider("gymnasium:CartPole-v1")
    env = RemoteEnv(provider=provider)
    env.reset(seed=1)
    os.kill(_process_of(provider), signal.SIGKILL)
    with pytest.raises((SessionLostError, ConnectionFailedError)):
        _step_to_the_end(env)
    with pytest.raises(OpenEnvError, match=r"lost|gone"):
        env.reset()
    env.close()


def _step_to_the_end(env: RemoteEnv) -> None:
    for _ in range(500):
        env.step(0)


def _process_of(provider: ProcessProvider) -> int:
    port = int(provider.replicas[0].base_url.rpartition(":")[2])
    for process in psutil.Process().children(recursive=True):
        if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in process.net_connections()):
            return process.pid
    raise AssertionError(f"no child listens on {port}")


def test_a_provider_starts_and_stops_the_server() -> None:
    provider = ProcessProvider("gymnasium:CartPole-v1")
    env = RemoteEnv(provider=provider)
    url = provider.replicas[0].base_url
    assert env.action_space == spaces.Discrete(2)
    assert env.reset(seed=1)[0].shape == (4,)
    env.close()
    with pytest.raises(ConnectionFailedError):
        RemoteEnv(url)


def test_gymnasium_makes_it_by_name(cart_pole: str) -> None:
    env = gymnasium.make("openenv_trl.gymnasium:openenv_trl/Remote-v0", base_url=cart_pole)
    local = gymnasium.make("CartPole-v1")
    assert env.reset(seed=1)[0].tolist() == local.reset(seed=1)[0].tolist()
    check_env(env.unwrapped)  # with a spec, so that making and closing it again are checked too
    env.close()


def test_copies_and_pickles_have_sessions_of_their_own(cart_pole: str) -> None:
    env = RemoteEnv(cart_pole)
    copied = pickle.loads(pickle.dumps(env))
    env.reset(seed=1)
    first, _ = copied.reset(seed=2)
    env.step(1)
    assert copied.reset(seed=2)[0].tolist() == first.tolist()
    env.close()
    copied.close()
    make = cloudpickle.loads(cloudpickle.dumps(lambda: RemoteEnv(cart_pole)))
    again = make()
    assert again.reset(seed=2)[0].tolist() == first.tolist()
    again.close()


def test_processes_of_their_own_step_it(cart_pole: str) -> None:
    envs = AsyncVectorEnv([lambda: RemoteEnv(cart_pole)] * 2)
    local = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    expected, _ = local.reset(seed=3)
    shown, _ = envs.reset(seed=3)
    assert shown.tolist() == expected.tolist()
    actions = numpy.array([0, 1])
    assert envs.step(actions)[0].tolist() == local.step(actions)[0].tolist()
    envs.close()


def test_text_is_rendered_where_the_server_renders_it(serve: Serve) -> None:
    env = RemoteEnv(serve("gymnasium:FrozenLake-v1?render_mode=ansi&is_slippery=false"), render_mode="ansi")
    local = gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=False)
    assert env.metadata["render_modes"] == ["ansi"]
    env.reset(seed=0)
    local.reset(seed=0)
    env.step(1)
    local.step(1)
    assert env.render() == local.render()
    check_env(env)
    env.close()


def test_a_picture_is_rendered_where_the_server_renders_it(serve: Serve) -> None:
    url = serve("gymnasium:own_environments:Everything-v0?render_mode=rgb_array")
    for wire in ("native", "openenv"):
        env = RemoteEnv(url, render_mode="rgb_array", wire=wire)  # type: ignore[arg-type]
        env.reset(seed=1)
        assert (env.render() == numpy.full((6, 8, 3), 200, numpy.uint8)).all()
        assert env.metadata == {"render_modes": ["rgb_array"], "render_fps": 4}
        env.close()


def test_a_mode_that_the_server_does_not_render_in_is_told(cart_pole: str) -> None:
    with pytest.raises(ConfigurationError, match=r"was made with None. Serve it with that mode.*render_mode=human"):
        RemoteEnv(cart_pole, render_mode="human")
    env = RemoteEnv(cart_pole)
    assert env.render() is None
    env.close()


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(ConnectionFailedError, match="Cannot fetch"):
        RemoteEnv("http://127.0.0.1:9")
