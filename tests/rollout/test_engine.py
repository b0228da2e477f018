"""Promises of a whole run: concurrency, order, retries in fresh sessions, who is to blame, and nothing left behind."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    ConnectionFailedError,
    EnvironmentExecutionError,
    PolicyError,
    SessionLostError,
)
from openenv_trl.rollout import BatchSettings, EndReason, TextActions, Trajectory, metrics
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'
EPISODES = 64


async def test_environment_calls_of_all_episodes_overlap(make_engine: Any, say: Any, tasks: Any) -> None:
    inside = 0
    everyone_inside = anyio.Event()

    async def wait_for_all(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        nonlocal inside
        if call == "step":
            inside += 1
            if inside == EPISODES:
                everyone_inside.set()
            await everyone_inside.wait()  # would never come if steps waited for each other
        return StepResult({"message": "."}, reward=1.0, done=call == "step")

    engine, pool = make_engine(wait_for_all)
    policy = say(HIT)
    with anyio.fail_after(30):
        trajectories = await engine.run(tasks(EPISODES), policy)
    assert [t.end_reason for t in trajectories] == [EndReason.DONE] * EPISODES
    assert policy.batches == [EPISODES]
    assert pool.leased == 0


async def test_a_straggling_environment_does_not_hold_the_others(make_engine: Any, say: Any, tasks: Any) -> None:
    others_done = anyio.Event()
    finished: list[int] = []

    async def one_waits(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            session.seed = argument["seed"]
        if call == "step" and session.seed == 0:
            await others_done.wait()
        return StepResult({"message": "."}, reward=float(session.seed), done=session.steps == 3)

    def note(trajectory: Trajectory) -> None:
        finished.append(trajectory.task.index)
        if len(finished) == 7:
            others_done.set()

    engine, _ = make_engine(one_waits)
    with anyio.fail_after(30):
        trajectories = await engine.run(tasks(8), say(HIT), on_trajectory=note)
    assert finished[-1] == 0
    assert [t.reward for t in trajectories] == [3.0 * seed for seed in range(8)]
    assert [t.task.index for t in trajectories] == list(range(8))


async def test_nobody_waits_for_an_episode_that_has_ended(make_engine: Any, say: Any, tasks: Any) -> None:
    waiting = anyio.Event()

    async def first_ends_late(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            session.seed = argument["seed"]
        elif session.seed == 0:
            await waiting.wait()  # until the other waits for its second batch
            return StepResult({"message": "."}, reward=0.0, done=True)
        if session.steps == 1:
            waiting.set()
        return StepResult({"message": "."}, reward=0.0, done=session.steps == 2)

    engine, _ = make_engine(first_ends_late, batching=BatchSettings(batch_window_s=60))
    with anyio.fail_after(20):
        trajectories = await engine.run(tasks(2), say(HIT))
    assert [len(t.turns) for t in trajectories] == [1, 2]


async def test_an_environment_that_changes_its_action_changes_no_other(
    make_engine: Any, say: Any, tasks: Any, tool_call: Any
) -> None:
    async def spoils(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "step":
            assert argument["arguments"] == {"amount": 3}
            argument["arguments"]["amount"] = "spoiled"
        return StepResult({"message": "."}, reward=0.0, done=session.steps == 2)

    engine, _ = make_engine(spoils)
    trajectories = await engine.run(tasks(2), say(tool_call("bet", amount=3)))
    assert [t.end_reason for t in trajectories] == [EndReason.DONE] * 2


async def test_no_more_episodes_are_open_than_allowed(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine(max_concurrent_episodes=3)
    trajectories = await engine.run(tasks(10), say(HIT))
    assert len(pool.sessions) == 3
    assert all(t.end_reason is EndReason.DONE for t in trajectories)
    assert engine.metrics["end/done"] == 1.0


async def test_a_failed_episode_is_tried_again_in_a_fresh_session_with_the_same_task(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    failed: set[int] = set()

    async def fail_once(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            session.seed = argument["seed"]
        if session.seed % 2 and session.steps == 2 and session.seed not in failed:
            failed.add(session.seed)
            raise EnvironmentExecutionError("bad luck")
        return StepResult({"message": f"Begin {session.seed}."}, reward=1.0, done=session.steps == 3)

    engine, pool = make_engine(fail_once)
    trajectories = await engine.run(tasks(4), say(HIT))
    assert [t.attempts for t in trajectories] == [1, 2, 1, 2]
    assert [t.reward for t in trajectories] == [3.0] * 4
    assert [len(t.turns) for t in trajectories] == [3] * 4
    assert sum(session.closed for session in pool.sessions) == 2
    for session in pool.sessions:
        if session.closed:
            assert [what for what, _ in session.calls] == ["reset", "step", "step"]
    assert engine.metrics["retries"] == 2.0


async def test_one_broken_environment_leaves_the_others_alone(make_engine: Any, say: Any, tasks: Any) -> None:
    async def third_is_broken(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset" and argument["seed"] == 2:
            raise EnvironmentExecutionError("no such level")
        return StepResult({"message": "."}, reward=1.0, done=call == "step")

    engine, pool = make_engine(third_is_broken)
    trajectories = await engine.run(tasks(4), say(HIT))
    assert [t.reward for t in trajectories] == [1.0, 1.0, None, 1.0]
    assert trajectories[2].error == "reset: no such level"
    assert engine.metrics["failed_fraction"] == 0.25
    assert pool.leased == 0


async def test_the_whole_runs_deadline_ends_stragglers_and_keeps_the_rest(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    async def odd_ones_hang(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            session.seed = argument["seed"]
        elif session.seed % 2:
            await anyio.sleep_forever()
        return StepResult({"message": "."}, reward=1.0, done=call == "step")

    engine, pool = make_engine(odd_ones_hang, limits={"batch_timeout_s": 2.0})
    trajectories = await engine.run(tasks(4), say(HIT))
    assert [t.end_reason.value for t in trajectories] == ["done", "batch_timeout"] * 2
    assert trajectories[1].turns
    assert pool.leased == 0


async def test_a_policy_that_cannot_generate_stops_the_run_at_once(make_engine: Any, tasks: Any) -> None:
    class Broken:
        async def generate(self, prompts: Any, sampling: Any) -> Any:
            raise ZeroDivisionError("out of memory")

    engine, pool = make_engine()
    with pytest.raises(PolicyError, match="ZeroDivisionError: out of memory"):
        await engine.run(tasks(4), Broken())
    assert pool.leased == 0


async def test_a_policy_that_answers_too_few_prompts_is_told(make_engine: Any, tasks: Any) -> None:
    class Short:
        async def generate(self, prompts: Any, sampling: Any) -> Any:
            return []

    engine, _ = make_engine()
    with pytest.raises(PolicyError, match="0 completions for 4 prompts"):
        await engine.run(tasks(4), Short())


async def test_a_server_that_is_not_there_is_the_users_mistake(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine()
    pool.refuse = ConnectionFailedError("No server answered at http://localhost:1.")
    with pytest.raises(ConnectionFailedError, match="localhost:1"):
        await engine.run(tasks(1), say(HIT))


async def test_no_tools_and_no_schema_is_the_users_mistake(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine(tools=[])
    with pytest.raises(ConfigurationError, match=r"fetch_schema=.*actions=TextActions"):
        await engine.run(tasks(1), say(HIT))
    assert pool.leased == 0


async def test_an_action_function_of_the_wrong_kind_stops_the_run(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine(actions=TextActions(lambda text: text))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigurationError, match="must return a dict or None, not str"):
        await engine.run(tasks(8), say("hit"))
    assert pool.leased == 0


async def test_actions_that_never_fit_the_environment_stop_the_run(make_engine: Any, say: Any, tasks: Any) -> None:
    async def wants_a_move(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "step":
            raise ActionValidationError("Invalid message", errors=[{"type": "missing", "loc": ("move",)}])
        return StepResult({"message": "."})

    engine, _ = make_engine(wants_a_move, actions=TextActions(lambda text: {"mvoe": text}))
    with pytest.raises(ConfigurationError, match="mvoe"):
        await engine.run(tasks(8), say("hit"))


async def test_cancelling_a_run_leaves_no_leased_session(make_engine: Any, say: Any, tasks: Any) -> None:
    stepping = anyio.Event()

    async def hang(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "step":
            stepping.set()
            await anyio.sleep_forever()
        return StepResult({"message": "."})

    engine, pool = make_engine(hang)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, tasks(8), say(HIT))
        await stepping.wait()
        group.cancel_scope.cancel()
    assert pool.leased == 0
    assert all(session.closed for session in pool.sessions if session.steps)


async def test_healthy_sessions_are_used_again_by_the_next_run(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine()
    await engine.run(tasks(4), say(HIT))
    await engine.run(tasks(4), say(HIT))
    assert len(pool.sessions) == 4
    assert not any(session.closed for session in pool.sessions)


async def test_generations_of_one_prompt_that_start_differently_are_counted_and_told_once(
    make_engine: Any, say: Any, tasks: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_warned", set())
    engine, _ = make_engine()
    with caplog.at_level(logging.WARNING):
        await engine.run(tasks(4, group="g"), say(HIT))
        await engine.run(tasks(4, group="g"), say(HIT))
    assert engine.metrics["group_mismatches"] == 1.0
    told = [record for record in caplog.records if "did not start from the same observation" in record.message]
    assert len(told) == 1
    assert "Begin 0." in told[0].message


async def test_no_tasks_is_no_work(make_engine: Any, say: Any) -> None:
    engine, pool = make_engine()
    assert await engine.run([], say(HIT)) == []
    assert pool.sessions == []


async def test_a_batch_is_never_larger_than_allowed(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, _ = make_engine(batching=BatchSettings(max_batch_size=3))
    policy = say(HIT)
    await engine.run(tasks(8), policy)
    assert max(policy.batches) == 3
    assert sum(policy.batches) == 24


SAYINGS = (HIT, "I give up.", "<tool_call>{</tool_call>", HIT + HIT, '<tool_call>{"name": "fold"}</tool_call>')
FAULTS = ("", "", "raises", "lost", "refuses", "nan", "done")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(
    faults=st.lists(st.lists(st.sampled_from(FAULTS), min_size=4, max_size=4), min_size=1, max_size=6),
    said=st.lists(st.sampled_from(SAYINGS), min_size=1, max_size=4),
    max_tokens=st.sampled_from([30, 120, 512]),
)
def test_whatever_happens_each_task_gets_one_consistent_trajectory(
    make_engine: Any, say: Any, tasks: Any, faults: list[list[str]], said: list[str], max_tokens: int
) -> None:
    async def misbehave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            session.seed = argument["seed"]
        fault = faults[session.seed][min(session.steps, 3)]
        if fault == "raises":
            raise EnvironmentExecutionError("raised")
        if fault == "lost":
            raise SessionLostError("lost")
        if fault == "refuses" and call == "step":
            raise ActionValidationError("refused")
        done = call == "step" and (fault == "done" or session.steps == 3)
        return StepResult({"message": "."}, reward=float("nan") if fault == "nan" else 1.0, done=done)

    async def run() -> list[Trajectory]:
        limits = {"max_completion_tokens": max_tokens, "max_turns": 5, "max_attempts": 2}
        engine, pool = make_engine(misbehave, limits=limits)
        trajectories = await engine.run(tasks(len(faults)), say(*said))
        assert pool.leased == 0
        return trajectories

    trajectories = anyio.run(run)
    assert [t.task.index for t in trajectories] == list(range(len(faults)))
    for t in trajectories:
        assert len(t.completion_ids) == len(t.mask) == len(t.logprobs or []) <= max_tokens
        assert sum(t.mask) == sum(turn.completion_tokens for turn in t.turns)
        assert (t.reward is None) == t.end_reason.is_failure
        assert (t.error is not None) == t.end_reason.is_failure
        if t.reward is not None:
            assert t.reward == len(t.step_rewards)
        row = t.as_row(0)
        assert len(row.completion_ids) == len(row.mask) > 0
