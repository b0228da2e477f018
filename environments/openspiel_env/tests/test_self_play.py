"""The rollout engine plays a model against itself: each side of a match is an episode of its own."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.client import fetch_schema
from openenv_trl.providers import ProcessProvider
from openenv_trl.providers.replica_pool import PoolSettings
from openenv_trl.rollout import EndReason, RolloutEngine, RolloutLimits, ScriptedMessagePolicy, Task, total_reward
from openenv_trl.rollout.play import replica_pool

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]
PROMPT = [{"role": "user", "content": "Play tic-tac-toe."}]


def provider(join_timeout_s: float = 20.0, turn_timeout_s: float = 20.0) -> ProcessProvider:
    return ProcessProvider(
        str(PACKAGE),
        env_vars={
            "OPENSPIEL_GAME": "tic_tac_toe",
            "OPENSPIEL_JOIN_TIMEOUT_S": str(join_timeout_s),
            "OPENSPIEL_TURN_TIMEOUT_S": str(turn_timeout_s),
        },
    )


def any_move(seed: int) -> Callable[[Sequence[Any]], Any]:
    generator = random.Random(seed)

    def respond(messages: Sequence[Any]) -> Any:
        listed = re.findall(r"Your moves: (.*)\.$", str(messages[-1]["content"]), re.MULTILINE)[-1]
        move = generator.choice(listed.split(", "))
        call = {"type": "function", "id": "1", "function": {"name": "play", "arguments": {"move": move}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    return respond


def task(name: str, player: int, **reset: Any) -> Task:
    return Task(PROMPT, {"match": name, "agent_player": player, "opponent_policy": "session", **reset}, group=player)


async def test_a_batch_of_both_sides_is_played_to_its_end() -> None:
    tasks = [task(f"match {number // 2}", number % 2, seed=number // 2) for number in range(24)]
    async with replica_pool(provider(), PoolSettings(max_replicas=1, sessions_per_replica=24)) as pool:
        engine = RolloutEngine(pool, None, limits=RolloutLimits(max_turns=9), fetch_schema=fetch_schema)
        trajectories = await engine.run(tasks, ScriptedMessagePolicy(any_move(1)))
    assert [each.end_reason for each in trajectories] == [EndReason.DONE] * 24
    scores = [total_reward(each) for each in trajectories]
    assert all(first + second == 0.0 for first, second in zip(scores[::2], scores[1::2], strict=True))
    assert {1.0, -1.0} <= set(scores)
    assert all(2 <= len(each.turns) <= 5 for each in trajectories)


async def test_groups_of_one_name_meet_pair_by_pair() -> None:
    tasks = [task("group", number % 2) for number in range(16)]
    async with replica_pool(provider(), PoolSettings(max_replicas=1, sessions_per_replica=16)) as pool:
        engine = RolloutEngine(pool, None, limits=RolloutLimits(max_turns=9), fetch_schema=fetch_schema)
        trajectories = await engine.run(tasks, ScriptedMessagePolicy(any_move(2)))
    assert [each.end_reason for each in trajectories] == [EndReason.DONE] * 16
    assert sum(total_reward(each) or 0.0 for each in trajectories) == 0.0


async def test_a_side_that_gives_up_truncates_the_other_side_and_gives_it_no_result() -> None:
    tasks = [task("one", 0), task("one", 1)]

    def respond(messages: Sequence[Any]) -> Any:
        gives_up = "You are o." in str(messages[-1]["content"]) and len(messages) > 2
        return {"role": "assistant", "content": "I give up."} if gives_up else any_move(3)(messages)

    limits = RolloutLimits(max_turns=9, max_attempts=1, max_invalid_actions=0)
    async with replica_pool(provider(), PoolSettings(max_replicas=1, sessions_per_replica=2)) as pool:
        engine = RolloutEngine(pool, None, limits=limits, fetch_schema=fetch_schema)
        stays, leaves = await engine.run(tasks, ScriptedMessagePolicy(respond))
    assert leaves.end_reason not in (EndReason.DONE, EndReason.TRUNCATED)
    assert (stays.end_reason, total_reward(stays)) == (EndReason.TRUNCATED, 0.0)


async def test_an_episode_whose_other_side_never_comes_fails_with_what_was_missing() -> None:
    limits = RolloutLimits(max_attempts=1)
    server = provider(join_timeout_s=0.2)
    async with replica_pool(server, PoolSettings(max_replicas=1, sessions_per_replica=2)) as pool:
        engine = RolloutEngine(pool, None, limits=limits, fetch_schema=fetch_schema)
        (trajectory,) = await engine.run([task("alone", 0)], ScriptedMessagePolicy(any_move(4)))
    assert trajectory.reward is None
    assert "No session took the seat of player 1 in the match 'alone'" in str(trajectory.error)
