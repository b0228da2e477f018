"""A reward that an environment's class lets be a number of numpy's or torch's arrives as Python's, on both wires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch

from openenv_trl import Environment
from openenv_trl.client import GenericEnvClient
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State

pytestmark = pytest.mark.anyio


class Loose(Observation):
    reward: Any = None


class Rewarding(Environment[Action, Loose, State]):
    """Gives a reward of another kind at each step."""

    REWARDS = (np.float32(0.5), np.float64(0.5), np.bool_(True), np.array(2), torch.tensor(0.25), np.longdouble(0.5))

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Loose:
        return Loose()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Loose:
        self.steps += 1
        return Loose(reward=self.REWARDS[self.steps - 1])

    @property
    def state(self) -> State:
        return State(step_count=self.steps)


@pytest.mark.parametrize("wire", ["native", "openenv"])
async def test_a_reward_of_another_librarys_arrives_as_pythons_number(
    serve: Callable[..., str], wire: Literal["native", "openenv"]
) -> None:
    async with GenericEnvClient(serve(create_app(Rewarding, Action, Loose)), wire=wire) as env:
        await env.reset()
        rewards = [(await env.step({})).reward for _ in Rewarding.REWARDS]
    expected = [0.5, 0.5, True, 2, 0.25, 0.5]
    assert [(type(each), each) for each in rewards] == [(type(each), each) for each in expected]
