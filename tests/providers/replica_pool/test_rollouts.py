"""Rollouts over a pool of replicas: a replica that is killed costs its episodes another attempt, and says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openenv_trl.client import fetch_schema
from openenv_trl.providers import ProcessProvider
from openenv_trl.providers.replica_pool import PoolSettings
from openenv_trl.rollout import EndReason, RolloutEngine, RolloutLimits, ScriptedMessagePolicy, Task
from openenv_trl.rollout.play import replica_pool

pytestmark = pytest.mark.anyio

BLACKJACK = Path(__file__).parents[3] / "environments" / "blackjack_env"
SETTINGS = PoolSettings(min_replicas=0, max_replicas=2, sessions_per_replica=6, scale_up_wait_s=0.0)
BOTH = SETTINGS.model_copy(update={"min_replicas": 2})


def tasks(count: int) -> list[Task]:
    return [Task([{"role": "user", "content": "Play."}], reset={"seed": seed}) for seed in range(count)]


def stand(messages: Any) -> Any:
    call = {"type": "function", "id": "1", "function": {"name": "stand", "arguments": {}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


async def test_play_goes_on_after_a_replica_is_killed(send, until):
    provider = ProcessProvider(BLACKJACK)
    turns = 0

    def stand_and_kill_once(messages: Any) -> Any:
        nonlocal turns
        turns += 1
        if turns == 10:
            send(provider, provider.base_urls[0])
        return stand(messages)

    async with replica_pool(provider, BOTH) as pool:
        await until(lambda: pool.metrics().replicas_ready == 2)  # the one that is killed has episodes by then
        engine = RolloutEngine(pool, None, limits=RolloutLimits(retry_delay_s=0.0), fetch_schema=fetch_schema)
        trajectories = await engine.run(tasks(40), ScriptedMessagePolicy(stand_and_kill_once))
        assert [trajectory.end_reason for trajectory in trajectories] == [EndReason.DONE] * 40
        again = [trajectory for trajectory in trajectories if trajectory.attempts > 1]
        assert again
        for trajectory in again:
            assert "has died: ended with exit code -9" in trajectory.failures[0]
        assert pool.metrics().deaths == 1
        assert pool.metrics().in_use == 0


async def test_an_episode_that_is_not_tried_again_ends_with_why_its_server_died(send):
    provider = ProcessProvider(BLACKJACK)

    def kill(messages: Any) -> Any:
        send(provider, provider.base_urls[0])
        return stand(messages)

    async with replica_pool(provider, SETTINGS) as pool:
        engine = RolloutEngine(pool, None, limits=RolloutLimits(max_attempts=1), fetch_schema=fetch_schema)
        (trajectory,) = await engine.run(tasks(1), ScriptedMessagePolicy(kill))
    assert trajectory.end_reason is EndReason.SESSION_LOST
    assert trajectory.reward is None
    assert trajectory.error is not None
    assert "has died: ended with exit code -9. Its last lines:" in trajectory.error
    assert "Serving on" in trajectory.error


async def test_as_many_episodes_are_open_as_the_pool_can_hold():
    async with replica_pool(ProcessProvider(BLACKJACK), SETTINGS) as pool:
        engine = RolloutEngine(pool, None, fetch_schema=fetch_schema)
        await engine.run(tasks(30), ScriptedMessagePolicy(stand))
        assert pool.max_sessions == 12
        assert pool.metrics().opened <= 12
        assert pool.metrics().waiting == 0
