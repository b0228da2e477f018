"""`RemoteVectorEnv`: many sessions as one vector environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from own_environments import Short

from openenv_trl.client.background import background_portal
from openenv_trl.client.inquiry import fetch_capacity
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    EnvironmentExecutionError,
    SessionCapacityError,
    SessionStateError,
)
from openenv_trl.gymnasium import RemoteEnv, RemoteVectorEnv

Serve = Callable[[str], str]
SHORT = "gymnasium:own_environments:Short-v0"


@pytest.mark.parametrize("wire", ["native", "openenv"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_it_is_what_gymnasiums_vector_is_in_each_autoreset_mode(mode: AutoresetMode, wire: Any, serve: Serve) -> None:
    envs = RemoteVectorEnv(serve(SHORT), 3, autoreset_mode=mode, wire=wire)
    local = SyncVectorEnv([Short] * 3, autoreset_mode=mode)
    assert envs.metadata["autoreset_mode"] is mode
    for name in ("action_space", "observation_space", "single_action_space", "single_observation_space", "num_envs"):
        assert getattr(envs, name) == getattr(local, name)
    _assert_same(envs.reset(seed=4), local.reset(seed=4), wire)
    local.action_space.seed(1)
    ended = 0
    for _ in range(25):
        actions = local.action_space.sample()
        found = envs.step(actions)
        _assert_same(found, local.step(actions), wire)
        ended += int((found[2] | found[3]).sum())
    assert ended > 5
    _assert_same(envs.reset(seed=[7, None, 9]), local.reset(seed=[7, None, 9]), wire)
    envs.close()


def _assert_same(found: Any, expected: Any, wire: str) -> None:
    *found_values, found_infos = found
    *expected_values, expected_infos = expected
    assert data_equivalence(found_values, expected_values, exact=True)
    if wire == "native":  # JSON has no arrays
        assert _plain(found_infos) == _plain(expected_infos)


def _plain(infos: Any) -> Any:
    if isinstance(infos, dict):
        return {key: _plain(value) for key, value in infos.items()}
    return [_plain(each) for each in infos.tolist()] if isinstance(infos, numpy.ndarray) else infos


def test_with_autoreset_disabled_a_mask_says_which_are_reset(serve: Serve) -> None:
    envs = RemoteVectorEnv(serve(SHORT), 3, autoreset_mode="Disabled")
    local = SyncVectorEnv([Short] * 3, autoreset_mode="Disabled")
    _assert_same(envs.reset(seed=4), local.reset(seed=4), "native")
    actions = numpy.zeros((3, 2), numpy.float32)
    over = numpy.zeros(3, bool)
    while not over.any():
        found = envs.step(actions)
        _assert_same(found, local.step(actions), "native")
        over = found[2] | found[3]
    with pytest.raises(SessionStateError, match=r"episodes of the environments \[.*\] are over.*reset_mask"):
        envs.step(actions)
    mask = {"reset_mask": over}
    _assert_same(envs.reset(options=dict(mask)), local.reset(options=dict(mask)), "native")
    _assert_same(envs.step(actions), local.step(actions), "native")
    for wrong in ([True], numpy.zeros(3, bool), numpy.ones(3, int)):
        with pytest.raises(ConfigurationError, match="must be an array of 3 truth values"):
            envs.reset(options={"reset_mask": wrong})
    envs.close()


def test_sessions_are_stepped_at_the_same_time(serve: Serve) -> None:
    envs = RemoteVectorEnv(serve("gymnasium:own_environments:Meeting-v0?size=12"), 12)
    envs.reset(seed=0)
    observations, *_ = envs.step(numpy.zeros(12, int))  # each waits for the other eleven
    assert observations.tolist() == [1] * 12
    envs.close()


def test_a_step_that_fails_costs_no_other_session_and_all_are_reset_after_it(serve: Serve) -> None:
    envs = RemoteVectorEnv(serve("gymnasium:own_environments:Slow-v0"), 4)
    envs.reset(seed=0)
    with pytest.raises(EnvironmentExecutionError, match="the motor is stuck"):
        envs.step(numpy.array([0, 2, 0, 0]))
    with pytest.raises(SessionStateError, match="do not stand alike: reset them all first"):
        envs.step(numpy.zeros(4, int))
    assert envs.reset()[0].tolist() == [0] * 4
    assert envs.step(numpy.zeros(4, int))[0].tolist() == [1] * 4
    envs.close()


def test_an_action_outside_of_its_space_is_refused(cart_pole: str) -> None:
    envs = RemoteVectorEnv(cart_pole, 2)
    envs.reset(seed=0)
    with pytest.raises(ActionValidationError, match="action=7 is outside"):
        envs.step(numpy.array([0, 7]))
    envs.close()


def test_a_step_before_the_first_reset_is_refused(cart_pole: str) -> None:
    envs = RemoteVectorEnv(cart_pole, 2)
    with pytest.raises(SessionStateError, match="No episode was begun yet"):
        envs.step(numpy.zeros(2, int))
    envs.close()


def test_close_frees_every_slot(serve: Serve) -> None:
    url = serve("gymnasium:CartPole-v1?max_episode_steps=9")  # where no other test left a session to the collector

    async def sessions() -> int:
        return (await fetch_capacity(url))["active_sessions"]

    before = background_portal().call(sessions)
    envs = RemoteVectorEnv(url, 5)
    envs.reset()
    assert background_portal().call(sessions) == before + 5
    envs.close()
    envs.close()
    assert background_portal().call(sessions) == before


def test_sessions_are_spread_over_several_servers(serve: Serve, cart_pole: str) -> None:
    urls = [cart_pole, serve("gymnasium:CartPole-v1?max_episode_steps=7")]
    envs = RemoteVectorEnv(urls, 4)
    envs.reset(seed=0)
    for _ in range(6):
        envs.step(numpy.array([0, 0, 1, 1]))
    cut = envs.step(numpy.array([1, 1, 0, 0]))[3]
    assert cut.tolist() == [False, True, False, True]
    envs.close()


def test_a_full_server_is_told(serve: Serve) -> None:
    envs = RemoteVectorEnv(serve("gymnasium:own_environments:Short-v0?max_concurrent_envs=2"), 3)
    with pytest.raises(SessionCapacityError, match="wait_for_slot_s"):
        envs.reset()
    envs.close()


def test_servers_that_know_nothing_of_gymnasium_are_stepped_too(serve: Serve) -> None:
    url = serve("environments/blackjack_env")
    fields = ["player_sum", "dealer_card", "usable_ace"]
    envs = RemoteVectorEnv(url, 3, fields=fields)
    shown, _ = envs.reset(seed=5)
    single = RemoteEnv(url, fields=fields)
    for index in range(3):
        alone, _ = single.reset(seed=5 + index)
        assert {key: value[index] for key, value in shown.items()} == alone
    *_, terminations, _, _ = envs.step(numpy.ones(3, int))
    assert terminations.all()
    single.close()
    envs.close()


def test_gymnasium_makes_it_by_name(cart_pole: str) -> None:
    envs = gymnasium.make_vec(
        "openenv_trl.gymnasium:openenv_trl/Remote-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        base_url=cart_pole,
    )
    assert isinstance(envs.unwrapped, RemoteVectorEnv)
    local = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    assert envs.reset(seed=3)[0].tolist() == local.reset(seed=3)[0].tolist()
    envs.close()


def test_frames_are_rendered_where_the_server_renders_them(serve: Serve) -> None:
    url = serve("gymnasium:own_environments:Everything-v0?render_mode=rgb_array")
    envs = RemoteVectorEnv(url, 2, render_mode="rgb_array")
    envs.reset(seed=0)
    frames = envs.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [(6, 8, 3)] * 2
    envs.close()


@pytest.mark.parametrize(("number", "seeds"), [(0, None), (2, [1, 2, 3])])
def test_numbers_that_do_not_fit_are_told(number: int, seeds: Any, cart_pole: str) -> None:
    with pytest.raises(ConfigurationError, match=r"one session|give one for each"):
        RemoteVectorEnv(cart_pole, number).reset(seed=seeds)
