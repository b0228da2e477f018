"""Containers that are killed, run out of memory, or lose their engine under a rollout, which goes on."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from openenv_trl.client import fetch_promises, fetch_schema
from openenv_trl.providers.owner import OWNER_LABEL, this_owner
from openenv_trl.rollout import EndReason, NoRetry, RolloutEngine, RolloutLimits, RolloutStrategies, provided_servers
from openenv_trl.rollout.play import open_pool

from ..providers.engines import PrivateEngine, docker, private_engine, require_engine

ROOT = Path(__file__).resolve().parents[2]
HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'
DOCKERFILE = """
ARG BASE
FROM ${BASE}
COPY rooms.py /chaos/rooms.py
ENV PYTHONPATH=/chaos
CMD ["python", "-m", "openenv_trl.server", "rooms:table", "--host", "0.0.0.0", "--port", "8000"]
"""

pytestmark = [pytest.mark.anyio, pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The rooms of these tests, served in a container."""
    require_engine()
    tag = f"test-{uuid.uuid4().hex[:12]}"
    make = ["make", "--file", "images.mk", "image-echo", f"IMAGE_TAG={tag}"]
    built = subprocess.run(make, capture_output=True, text=True, cwd=ROOT)
    assert built.returncode == 0, f"{built.stdout[-3000:]}\n{built.stderr[-3000:]}"
    folder = tmp_path_factory.mktemp("image")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "rooms.py").write_text(Path(__file__).with_name("rooms.py").read_text())
    name = f"chaos-rooms:{tag}"
    docker("build", "--build-arg", f"BASE=echo-env:{tag}", "--tag", name, str(folder))
    yield name
    docker("image", "rm", "--force", name, f"echo-env:{tag}", check=False)


def mine(host: str | None = None) -> list[str]:
    """Containers that this process owns."""
    only = f"label={OWNER_LABEL}={this_owner().id}"
    return docker("ps", "--all", "--quiet", "--no-trunc", "--filter", only, host=host).stdout.split()


class Interrupting:
    """Hits in every turn; before the second, something is done to the servers."""

    def __init__(self, policy: Any, interrupt: Callable[[], Awaitable[None]]) -> None:
        self._policy, self._interrupt, self._turns = policy, interrupt, 0

    async def generate(self, prompts: Any, sampling: Any) -> Any:
        self._turns += 1
        if self._turns == 2:
            await self._interrupt()
        return await self._policy.generate(prompts, sampling)


async def rollout(
    image: str,
    tokenizer: Any,
    tasks: Any,
    policy: Any,
    strategies: RolloutStrategies | None = None,
    sessions: int = 4,
    **spec: Any,
) -> tuple[list[Any], Any]:
    """Trajectories, and the pool's numbers at the end."""
    settings = {"type": "docker", "image": image, "ready_timeout_s": 60, **spec}
    servers = provided_servers(settings, {"start_back_off_s": 0.1, "start_failures": 50}, sessions_per_server=sessions)
    limits = RolloutLimits(retry_delay_s=0.05, connect_timeout_s=120, step_timeout_s=60, max_attempts=4)
    async with open_pool(servers, sessions_per_server=sessions) as pool:
        engine = RolloutEngine(
            pool,
            tokenizer,
            limits=limits,
            strategies=strategies,
            fetch_schema=fetch_schema,
            fetch_promises=fetch_promises,
        )
        with anyio.fail_after(240):
            trajectories = await engine.run(tasks, policy)
        return trajectories, pool.metrics()


async def test_a_container_that_runs_out_of_memory_costs_its_episode_which_says_so(
    image: str, tokenizer: Any, tasks: Any, say: Any
) -> None:
    faults = ["", "eats memory", "", ""]
    strategies = RolloutStrategies(retry=NoRetry())
    # Two sessions a container, so that not all four are in the one that dies.
    played, pool = await rollout(image, tokenizer, tasks(*faults), say(HIT), strategies, 2, memory="160m", replicas=2)
    dead = played[1]
    assert (dead.end_reason, dead.reward) == (EndReason.SESSION_LOST, None)
    assert "out of memory" in dead.error
    assert any(t.reward == 3.0 for t in played)  # those that shared the dead container are lost with it
    assert pool.deaths == 1
    assert mine() == []


async def test_a_container_that_is_killed_is_replaced_and_its_episodes_are_played_again(
    image: str, tokenizer: Any, tasks: Any, say: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def kill() -> None:
        await anyio.to_thread.run_sync(lambda: docker("kill", *mine()))

    policy = Interrupting(say(HIT), kill)
    strategies = RolloutStrategies.model_validate({"retry": {"type": "back_off", "attempts": {"session_lost": 4}}})
    played, pool = await rollout(image, tokenizer, tasks("", "", ""), policy, strategies)
    assert [t.reward for t in played] == [3.0] * 3
    assert max(t.attempts for t in played) > 1
    assert pool.deaths == 1
    assert pool.starts == 2
    assert "has died: exit code 137" in caplog.text
    assert mine() == []


@pytest.fixture
def engine_to_restart(image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateEngine]:
    with private_engine([image]) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        yield engine


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_rollout_outlives_a_restart_of_its_engine(
    image: str, engine_to_restart: PrivateEngine, number: int, tokenizer: Any, tasks: Any, say: Any
) -> None:
    def restart() -> None:
        engine_to_restart.stop(number)
        engine_to_restart.start()

    async def interrupt() -> None:
        await anyio.to_thread.run_sync(restart)

    policy = Interrupting(say(HIT), interrupt)
    strategies = RolloutStrategies.model_validate({"retry": {"type": "back_off", "attempts": {"session_lost": 4}}})
    played, _ = await rollout(image, tokenizer, tasks("", ""), policy, strategies)
    assert [t.reward for t in played] == [3.0] * 2
    assert mine(engine_to_restart.host) == []
