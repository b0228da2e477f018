"""The same tasks, played over a real server: by a client that calls tools by name, and by the rollout engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calendar_env.models import CalendarState
from calendar_env.tasks import FAMILIES, LEVELS, dataset, generate
from calendar_env.tasks.solver_policy import SolverMessages
from calendar_env.tasks.solvers import Refused, solve

from openenv_trl.client import GenericEnvClient, fetch_schema
from openenv_trl.providers import ProcessProvider
from openenv_trl.providers.replica_pool import PoolSettings
from openenv_trl.rollout import EndReason, RolloutEngine, RolloutLimits, ScriptedMessagePolicy, Task, total_reward
from openenv_trl.rollout.play import replica_pool

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ProcessProvider(str(PACKAGE)) as provider:
        yield provider.replicas[0].base_url


class WireTools:
    """Calls tools by their names over a blocking client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        action = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
        result = self.client.step(action)
        assert not result.done
        answer = json.loads(result.observation["tool_result"]["text"])
        if not result.observation["success"]:
            raise Refused(result.observation["tool_result"]["status_code"], result.observation["error_message"])
        return answer


def test_the_solver_gets_all_over_the_wire(server: str) -> None:
    with GenericEnvClient(server).sync() as client:
        for number, family in enumerate(FAMILIES):
            task = generate(family, LEVELS[number % 3], 21)
            opening = client.reset(task=family, level=LEVELS[number % 3], task_seed=21)
            assert opening.observation["message"] == task.prompt
            message = solve(task, WireTools(client))
            action = {"type": "call_tool", "tool_name": "finish", "arguments": {"message": message}}
            result = client.step(action)
            assert (result.reward, result.done) == (1.0, True), task.id


def test_neither_observation_nor_state_tells_more_than_the_prompt(server: str) -> None:
    with GenericEnvClient(server).sync() as client:
        task = generate("answer_question", "medium", 4)
        opening = client.reset(task="answer_question", level="medium", task_seed=4)
        state = client.state()
        told = {name: value for name, value in opening.observation.items() if value not in (None, {}, [])}
        assert told == {"success": True, "message": task.prompt}
        assert set(state) <= set(CalendarState.model_fields)
        listed = client.step({"type": "call_tool", "tool_name": "events_list", "arguments": {"calendarId": "primary"}})
        assert not {"goal", "spec", "score"} & set(json.dumps([listed.observation, state]).lower().split('"'))


async def test_the_rollout_engine_brings_the_solvers_reward() -> None:
    rows = dataset.rows(levels=["easy", "hard"], seeds=[33])
    tasks = [generate(row["task"], row["level"], row["task_seed"]) for row in rows]
    episodes = [
        Task(row["prompt"], {name: value for name, value in row.items() if name != "prompt"}, group=number)
        for number, row in enumerate(rows)
    ]
    settings = PoolSettings(max_replicas=1, sessions_per_replica=len(rows))
    async with replica_pool(ProcessProvider(str(PACKAGE)), settings) as pool:
        engine = RolloutEngine(
            pool, None, limits=RolloutLimits(max_turns=40, max_completion_tokens=100_000), fetch_schema=fetch_schema
        )
        trajectories = await engine.run(episodes, ScriptedMessagePolicy(SolverMessages(tasks)))
    ended = [(task.id, each.end_reason, total_reward(each)) for task, each in zip(tasks, trajectories, strict=True)]
    assert ended == [(task.id, EndReason.DONE, 1.0) for task in tasks]
