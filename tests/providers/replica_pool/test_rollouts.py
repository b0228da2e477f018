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

DIES_ONCE = '''
import os, signal
from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from openenv_trl import create_app, tool

class DiesOnce(BlackjackEnvironment):
    def reset(self, seed=None, episode_id=None, **kwargs):
        self.seed = seed
        return super().reset(seed=seed, episode_id=episode_id, **kwargs)

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        return self.reset(seed, episode_id, **kwargs)

    @tool
    async def stand(self) -> BlackjackObservation:
        """End the hand."""
        if self.seed == 9 and not os.path.exists(MARK):
            open(MARK, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().stand()

app = create_app(DiesOnce, BlackjackAction, BlackjackObservation, env_name="deadly_env", max_concurrent_envs=64)
'''

BLACKJACK = Path(__file__).parents[3] / "environments" / "blackjack_env"
SETTINGS = PoolSettings(min_replicas=0, max_replicas=2, sessions_per_replica=6, scale_up_wait_s=0.0)
BOTH = SETTINGS.model_copy(update={"min_replicas": 2})


def tasks(count: int) -> list[Task]:
    return [Task([{"role": "user", "content": "Play."}], reset={"seed": seed}) for seed in range(count)]


def stand(messages: Any) -> Any:
    call = {"type": "function", "id": "1", "function": {"name": "stand", "arguments": {}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


@pytest.fixture
def dies_once(tmp_path: Path) -> ProcessProvider:
    """Servers of blackjack, of which the first one kills itself that is to stand in the hand of seed 9."""
    folder = tmp_path / "deadly_env"
    (folder / "server").mkdir(parents=True)
    (folder / "openenv.yaml").write_text("spec_version: 1\nname: deadly_env\napp: server.app:app\nport: 8000\n")
    (folder / "server" / "app.py").write_text(f"MARK = {str(tmp_path / 'dead')!r}\n{DIES_ONCE}")
    return ProcessProvider(folder)


async def test_play_goes_on_after_a_replica_has_died(dies_once, until):
    async with replica_pool(dies_once, BOTH) as pool:
        await until(lambda: pool.metrics().replicas_ready == 2)
        engine = RolloutEngine(pool, None, limits=RolloutLimits(retry_delay_s=0.0), fetch_schema=fetch_schema)
        trajectories = await engine.run(tasks(40), ScriptedMessagePolicy(stand))
        assert [trajectory.end_reason for trajectory in trajectories] == [EndReason.DONE] * 40
        assert trajectories[9].attempts > 1
        for trajectory in trajectories:
            if trajectory.attempts > 1:
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
