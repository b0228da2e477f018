"""What is served in a container is what is played in process: hands of blackjack, card by card."""

from __future__ import annotations

from typing import Any

import pytest
from blackjack_env.models import BlackjackAction
from blackjack_env.server.blackjack_environment import BlackjackEnvironment

from openenv_trl.client import GenericEnvClient

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.docker,
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize("image", ["blackjack_env"], indirect=True)
async def test_a_hand_through_the_published_port_is_the_hand_in_process(docker: Any, container: str) -> None:
    environment = BlackjackEnvironment()
    async with GenericEnvClient(docker.address(container)) as env:
        for seed in range(10):
            expected, result = environment.reset(seed=seed, task_seed=3), await env.reset(seed=seed, task_seed=3)
            while not expected.done:
                assert result.observation == expected.model_dump(exclude={"reward", "done"})
                move = "hit" if expected.player_sum < 15 else "stand"
                expected, result = environment.step(BlackjackAction(move=move)), await env.step({"move": move})
            assert (result.observation["message"], result.reward, result.done) == (
                expected.message,
                expected.reward,
                True,
            )
