"""Promises about whose fault it is: the model is told of its own mistakes, and of nobody else's; nothing ends a run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest

from openenv_trl.errors import ConnectionFailedError, EnvironmentFactoryError, PolicyError, SessionCapacityError
from openenv_trl.rollout import BatchSettings, EndReason, RolloutStrategies, ToolErrorRule, Trajectory
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'


def failed_call(error_type: str) -> dict[str, Any]:
    """What an environment with tools observes of a call that failed."""
    return {"tool_name": "hit", "result": None, "error": {"error_type": error_type, "message": "it went wrong"}}


def tool_fails(error_type: str, *, at: int = 1) -> Any:
    async def behave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            return StepResult({"message": "Begin."})
        if session.steps == at:
            return StepResult(failed_call(error_type), reward=0.0)
        return StepResult({"message": f"Step {session.steps}."}, reward=1.0, done=session.steps == 3)

    return behave


@pytest.mark.parametrize("error_type", ["invalid_args", "tool_not_found", "execution_error"])
async def test_a_tool_error_that_the_model_can_learn_from_goes_back_to_it_as_text(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any, error_type: str
) -> None:
    engine, _ = make_engine(tool_fails(error_type))
    (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.end_reason is EndReason.DONE
    assert trajectory.attempts == 1
    assert "Error: it went wrong" in tokenizer.decode(trajectory.completion_ids)
    assert trajectory.reward == 2.0
    own_mistake = error_type != "execution_error"
    assert trajectory.invalid_actions == own_mistake
    assert trajectory.turns[0].mistaken_calls == own_mistake


async def test_mistaken_calls_count_as_invalid_actions(make_engine: Any, say: Any, tasks: Any) -> None:
    async def never(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"message": "."} if call == "reset" else failed_call("invalid_args"))

    engine, _ = make_engine(never, limits={"max_invalid_actions": 1})
    (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.end_reason is EndReason.INVALID_ACTION
    assert len(trajectory.turns) == 2


@pytest.mark.parametrize("error_type", ["timeout", "transport_error"])
async def test_a_tool_error_of_the_infrastructure_is_neither_shown_nor_scored(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any, error_type: str
) -> None:
    engine, pool = make_engine(tool_fails(error_type, at=2), limits={"max_attempts": 2})
    policy = say(HIT)
    (trajectory,) = await engine.run(tasks(1), policy)
    assert trajectory.end_reason is EndReason.TOOL_FAILED
    assert trajectory.reward is None
    assert trajectory.error == f"step: {error_type}: it went wrong"
    assert trajectory.attempts == 2  # in a fresh session, which failed too
    assert len(trajectory.failures) == 1
    assert not any("went wrong" in tokenizer.decode(prompt) for prompt in policy.prompts)
    assert set(trajectory.as_row(0).mask) == {0}
    assert pool.leased == 0


async def test_a_tools_own_exception_ends_the_episode_where_one_says_so(make_engine: Any, say: Any, tasks: Any) -> None:
    rule = ToolErrorRule(fail_on=frozenset({"timeout", "transport_error", "execution_error"}))
    engine, _ = make_engine(tool_fails("execution_error"), strategies=RolloutStrategies(tool_errors=rule))
    (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.end_reason is EndReason.TOOL_FAILED


def raises(what: BaseException, at: str) -> Any:
    """The environment of every second episode raises it; the others are played."""

    async def behave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            session.bad = argument["seed"] % 2 == 1
        if session.bad and call == at:
            raise what
        return StepResult({"message": "."}, reward=1.0, done=call == "step")

    return behave


async def assert_only_its_own_episodes_end(make_engine: Any, say: Any, tasks: Any, what: Any, at: str) -> None:
    engine, pool = make_engine(raises(what, at), limits={"max_attempts": 2})
    with anyio.fail_after(20):
        trajectories: list[Trajectory] = await engine.run(tasks(4), say(HIT))
    assert [t.reward for t in trajectories] == [1.0, None, 1.0, None]
    assert trajectories[1].end_reason is EndReason.ENVIRONMENT_ERROR
    assert f"{at}: the environment raised {type(what).__name__}" in (trajectories[1].error or "")
    assert pool.leased == 0


@pytest.mark.parametrize("at", ["reset", "step"])
@pytest.mark.parametrize(
    "what",
    [SystemExit(3), GeneratorExit(), asyncio.CancelledError("not ours"), BaseException("bare")],
    ids=lambda what: type(what).__name__,
)
async def test_what_is_meant_to_end_a_program_ends_one_episode(
    make_engine: Any, say: Any, tasks: Any, what: BaseException, at: str
) -> None:
    await assert_only_its_own_episodes_end(make_engine, say, tasks, what, at)


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_environments_own_interrupt_is_not_the_users(
    make_engine: Any, say: Any, tasks: Any, in_thread: bool
) -> None:
    def run() -> None:
        anyio.run(assert_only_its_own_episodes_end, make_engine, say, tasks, KeyboardInterrupt(), "step")
        passed.append(True)

    passed: list[bool] = []
    if in_thread:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(30)
    else:
        run()
    assert passed


@pytest.mark.parametrize(
    ("error", "reason", "attempts"),
    [
        (SystemExit(1), EndReason.CREATION_FAILED, 3),
        (EnvironmentFactoryError("Table"), EndReason.CREATION_FAILED, 3),
        (ValueError("no such table"), EndReason.CREATION_FAILED, 3),
        (ConnectionFailedError("gone"), EndReason.CONNECT_FAILED, 1),
        (SessionCapacityError(1, 1), EndReason.CAPACITY, 1),
    ],
    ids=lambda value: getattr(value, "value", type(value).__name__),
)
async def test_a_session_that_cannot_be_had_ends_its_episode_and_only_a_broken_one_is_tried_again(
    make_engine: Any, say: Any, tasks: Any, error: BaseException, reason: EndReason, attempts: int
) -> None:
    engine, pool = make_engine()
    await engine.prepare()
    pool.refuse = error
    (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert (trajectory.end_reason, trajectory.attempts) == (reason, attempts)


async def test_a_session_that_cannot_be_closed_ends_nothing(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine(raises(RuntimeError("odd"), "step"), limits={"max_attempts": 1})

    async def release(lease: Any, *, healthy: bool) -> None:
        pool.leased -= 1
        if not healthy:
            raise SystemExit("close() ended the program")
        pool.free.append(lease.session)

    pool.release = release
    trajectories = await engine.run(tasks(4), say(HIT))
    assert [t.reward for t in trajectories] == [1.0, None, 1.0, None]


async def test_a_generation_beyond_its_deadline_ends_its_episode_and_frees_its_place_in_the_batch(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    waiting: list[int] = []

    class OneIsSlow:
        inner, concurrent = say(HIT), True

        async def generate(self, prompts: Any, sampling: Any) -> Any:
            if "Begin 0." in self.inner.tokenizer.decode(prompts[0]):
                waiting.append(1)
                try:
                    await anyio.sleep_forever()
                finally:
                    waiting.pop()
            return await self.inner.generate(prompts, sampling)

    engine, _ = make_engine(limits={"generate_timeout_s": 2.0})
    trajectories = await engine.run(tasks(3), OneIsSlow())
    assert [t.end_reason.value for t in trajectories] == ["generate_timeout", "done", "done"]
    assert trajectories[0].attempts == 1
    assert waiting == []


async def test_an_episode_that_gave_up_waiting_is_in_no_later_batch(make_engine: Any, say: Any, tasks: Any) -> None:
    first_batch_is_on = anyio.Event()

    class FirstBatchIsLong:
        inner = say(HIT)

        async def generate(self, prompts: Any, sampling: Any) -> Any:
            if not first_batch_is_on.is_set():
                first_batch_is_on.set()
                await anyio.sleep_forever()
            return await self.inner.generate(prompts, sampling)

    async def second_comes_late(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset" and argument["seed"] == 1:
            await first_batch_is_on.wait()
        return StepResult({"message": "."}, reward=1.0, done=call == "step")

    engine, _ = make_engine(
        second_comes_late, limits={"generate_timeout_s": 0.2}, batching=BatchSettings(batch_window_s=0.0)
    )
    policy = FirstBatchIsLong()
    trajectories = await engine.run(tasks(2), policy)
    assert [t.end_reason.value for t in trajectories] == ["generate_timeout"] * 2
    assert policy.inner.batches == []  # the second one's request was withdrawn, and never sent


async def test_a_policy_whose_own_task_was_cancelled_stops_the_run_and_is_not_waited_for(
    make_engine: Any, tasks: Any
) -> None:
    class Cancelled:
        async def generate(self, prompts: Any, sampling: Any) -> Any:
            raise asyncio.CancelledError("the connection's task was cancelled")

    engine, pool = make_engine()
    with anyio.fail_after(20), pytest.raises(PolicyError, match="connection's task"):
        await engine.run(tasks(2), Cancelled())
    assert pool.leased == 0
