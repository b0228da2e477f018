"""Environments in real servers that raise, hang, die or refuse: each ends its own episodes, and never the run."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.rollout import CutStragglers, EndReason, NoRetry, RolloutStrategies

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'


async def test_whatever_a_tool_raises_in_its_server_ends_one_episode(
    serve: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    servers = await serve()
    faults = ["", "raises", "exits", "interrupts", "generator exits", "recurses", ""]
    async with engine_over(servers.base_urls, max_attempts=2, step_timeout_s=20.0) as engine:
        with anyio.fail_after(60):
            trajectories = await engine.run(tasks(*faults), say(HIT))
            again = await engine.run(tasks("", ""), say(HIT))
    ends = [t.end_reason for t in trajectories]
    assert ends[0] is ends[-1] is EndReason.DONE
    assert ends[1] is EndReason.ENVIRONMENT_ERROR
    assert all(end.is_failure for end in ends[1:-1])
    assert [t.reward for t in trajectories] == [3.0, None, None, None, None, None, 3.0]
    assert [t.attempts for t in trajectories] == [1, 2, 2, 2, 2, 2, 1]
    assert [t.reward for t in again] == [3.0, 3.0]


async def test_an_environment_that_kills_its_server_loses_its_own_episode_and_costs_the_others_an_attempt(
    serve: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    servers = await serve(replicas=2, max_restarts=1)
    limits = {"max_attempts": 4, "server_patience_s": 30.0, "connect_timeout_s": 30.0}
    strategies = RolloutStrategies.model_validate({"retry": {"type": "back_off", "attempts": {"session_lost": 4}}})
    once = strategies.model_copy(update={"retry": NoRetry()})
    async with engine_over(servers.base_urls, once, **limits) as engine:
        with anyio.fail_after(60):
            (dead,) = await engine.run(tasks("dies"), say(HIT))
    async with engine_over(servers.base_urls, strategies, **limits) as engine:
        with anyio.fail_after(60):
            sound = await engine.run(tasks(*[""] * 4), say(HIT))
    assert dead.end_reason is EndReason.SESSION_LOST
    assert [t.reward for t in sound] == [3.0] * 4


async def test_a_constructor_that_hangs_makes_its_server_useless_and_not_the_run(
    serve: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    good, stuck = await serve("table"), await serve("stuck_table")
    async with engine_over([*stuck.base_urls, *good.base_urls]) as engine:
        with anyio.fail_after(60):
            trajectories = await engine.run(tasks(*[""] * 6), say(HIT))
    assert [t.reward for t in trajectories] == [3.0] * 6
    assert {t.base_url for t in trajectories} == set(good.base_urls)


async def test_a_server_that_others_have_filled_is_waited_for_and_then_said_to_be_full(
    serve: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    servers = await serve("small_table")
    (url,) = servers.base_urls
    async with engine_over(servers.base_urls) as engine:
        with anyio.fail_after(60):
            await engine.prepare()
            await engine._pool.aclose()  # its own idle session is gone
            async with (
                GenericEnvClient(url),
                GenericEnvClient(url),
                engine_over(servers.base_urls, connect_timeout_s=2.0) as full,
            ):
                full._actions, full._template, full._reached = engine.actions, engine.template, True
                trajectories = await full.run(tasks("", ""), say(HIT))
    assert [t.end_reason for t in trajectories] == [EndReason.CAPACITY] * 2
    assert [t.attempts for t in trajectories] == [1, 1]  # the pool has waited already
    assert "refuses more than 0" in (trajectories[0].error or "")


async def test_a_step_that_hangs_in_a_server_is_cut_as_a_straggler(
    serve: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    servers = await serve()
    strategies = RolloutStrategies(straggler=CutStragglers(after_fraction=0.7, grace_s=1.5), retry=NoRetry())
    async with engine_over(servers.base_urls, strategies) as engine:
        with anyio.fail_after(40):
            trajectories = await engine.run(tasks("", "hangs", "", ""), say(HIT))
    assert [t.end_reason.value for t in trajectories] == ["done", "straggler", "done", "done"]
    assert len(trajectories[1].turns) == 2


async def test_the_model_is_told_of_its_own_tool_errors_and_of_no_others(
    serve: Any, engine_over: Any, say: Any, tasks: Any, tool_call: Any, tokenizer: Any
) -> None:
    servers = await serve("desk")
    # The engine checks calls itself: what it lets through and the environment refuses is a matter of wider schemas.
    looks = [tool_call("look", drawer=1), tool_call("look", drawer=13), tool_call("look", drawer="one")]
    async with engine_over(servers.base_urls, max_attempts=2) as engine:
        with anyio.fail_after(60):
            await engine.prepare()
            for each in engine.actions._tools.values():
                each.input_schema["properties"] = {name: {} for name in each.input_schema["properties"]}
            engine._template = engine._make_template(engine.actions)
            (told,) = await engine.run(tasks(""), say(*looks, tool_call("look", drawer=2)))
            (lost,) = await engine.run(tasks(""), say(looks[0], tool_call("dial", number="1")))
    text = tokenizer.decode(told.completion_ids)
    assert told.end_reason is EndReason.DONE
    assert "there is no drawer 13" in text  # the tool's own exception: the world answered
    assert "Drawer 1 is empty" in text
    assert [turn.mistaken_calls for turn in told.turns] == [0, 0, 1, 0]
    assert "validation error" in told.turns[2].observations[0]
    assert told.reward == 4.0

    assert lost.end_reason is EndReason.TOOL_FAILED
    assert "timeout: " in (lost.error or "")
    assert "cancelled" not in tokenizer.decode(lost.completion_ids)
    assert lost.reward is None
    assert lost.attempts == 2
