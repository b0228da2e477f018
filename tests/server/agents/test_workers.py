"""Agents of a server with several processes: each finds its own environment again, or the trainer's that it has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from openenv_trl.client import GenericEnvClient

pytestmark = pytest.mark.anyio

APPLICATION = '''
import os
from openenv_trl.environment import Environment, tool
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State


class Summing(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.sum = seed or 0
        return Observation()

    def step(self, action, timeout_s=None, **kwargs):
        return Observation()

    @property
    def state(self):
        return State(step_count=self.sum)

    @tool
    def add(self, number: int) -> dict:
        """Add."""
        self.sum += number
        return {"sum": self.sum, "process": os.getpid()}


app = create_app(Summing, Action, Observation, max_concurrent_envs=8)
'''


@pytest.fixture
def address(stage: Any, tmp_path: Path) -> Iterator[str]:
    tmp_path.joinpath("summing.py").write_text(APPLICATION)
    variables = {"OPENENV_TRL_TOKEN": stage.token, "OPENENV_TRL_AGENT_TOKEN": stage.agent_token}
    command = [sys.executable, "-m", "openenv_trl.server", "summing:app", "--port", "0", "--workers", "2"]
    environment = {**os.environ, **variables, "PYTHONPATH": str(tmp_path)}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if "Serving on http://" in line:
                yield line.split("http://")[1].split()[0]
                return
        pytest.fail("the server did not begin to serve")
    finally:
        server.terminate()
        told = server.stderr.read()
        server.wait(30)
    assert stage.token not in told
    assert stage.agent_token not in told


async def test_agents_of_several_workers_keep_their_environments(stage: Any, address: str) -> None:
    results: dict[int, dict[str, Any]] = {}

    async def act(seed: int) -> None:
        async with stage.agent(address, f"?seed={seed}", token=stage.agent_token) as agent:
            await agent.initialize()
            for _ in range(10):
                results[seed] = (await agent.call_tool("add", {"number": 1}))["structuredContent"]

    async with anyio.create_task_group() as tasks:
        for seed in range(0, 400, 100):
            tasks.start_soon(act, seed)
    assert {seed: result["sum"] for seed, result in results.items()} == {seed: seed + 10 for seed in results}
    assert len({result["process"] for result in results.values()}) == 2


async def test_an_agent_reaches_the_trainers_session_in_whichever_worker(stage: Any, address: str) -> None:
    trainers = {"Authorization": f"Bearer {stage.token}"}
    processes: set[int] = set()
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, headers=trainers, timeout=30) as http:
        for _ in range(2):
            create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
            session_id = (await http.post("/mcp", json=create)).json()["result"]["session_id"]
            query = f"?session_id={session_id}"
            async with GenericEnvClient(f"http://{address}/ws{query}", headers=trainers) as trainer:
                await trainer.reset(seed=40)
                async with stage.agent(address, query, token=stage.agent_token) as agent:
                    await agent.initialize()
                    result = await agent.call_tool("add", {"number": 1})
                    assert result["structuredContent"]["sum"] == 41
                    processes.add(result["structuredContent"]["process"])
                assert (await trainer.state())["step_count"] == 41
    assert len(processes) == 2
