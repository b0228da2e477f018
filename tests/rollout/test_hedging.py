"""Promises of hedging: the first answer wins, the loser is closed, and only repeatable environments are hedged."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.errors import ActionValidationError, ConfigurationError, ProtocolError
from openenv_trl.rollout import EndReason, HedgeSlowCalls, RolloutStrategies
from openenv_trl.rollout.hedging import Outcome, Race
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'


def hedging(after_s: float = 0.25, **settings: Any) -> RolloutStrategies:
    return RolloutStrategies(straggler=HedgeSlowCalls(after_s=after_s, repeatable=True, **settings))


def slow_first(at: int, *, answers: Any = None) -> Any:
    """Three steps; the first session that comes to the step of this number (0: to reset) hangs in it."""
    hung: list[int] = []

    async def behave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if session.steps == at and not hung:
            hung.append(session.number)
            await anyio.sleep_forever()
        if call == "reset":
            return StepResult({"message": "Begin.", "metadata": {"session": session.number}})
        message = f"Step {session.steps}." if answers is None else answers(session)
        return StepResult({"message": message}, reward=1.0, done=session.steps == 3)

    return behave


@pytest.mark.parametrize("at", [0, 1, 2, 3])
async def test_a_slow_call_is_answered_by_a_second_session_that_played_the_same(
    make_engine: Any, say: Any, tasks: Any, at: int
) -> None:
    engine, pool = make_engine(slow_first(at), strategies=hedging())
    with anyio.fail_after(20):
        (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.end_reason is EndReason.DONE
    assert trajectory.reward == 3.0
    assert trajectory.attempts == 1
    assert [turn.observations for turn in trajectory.turns] == [["Step 1."], ["Step 2."], ["Step 3."]]
    assert (engine.metrics["hedges"], engine.metrics["hedges_won"]) == (1.0, 1.0)
    slow, quick = pool.sessions
    assert slow.closed
    assert not quick.closed  # it is whole, and may be used again
    assert quick.calls[: len(slow.calls)] == slow.calls
    assert pool.leased == 0


async def test_quick_calls_are_not_made_twice(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine(strategies=hedging(after_s=30))
    trajectories = await engine.run(tasks(4), say(HIT))
    assert [t.reward for t in trajectories] == [3.0] * 4
    assert len(pool.sessions) == 4
    assert "hedges" not in engine.metrics


async def test_the_first_session_goes_on_where_the_second_cannot_be_had(make_engine: Any, say: Any, tasks: Any) -> None:
    released = anyio.Event()

    async def slow(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if session.steps == 1 and call == "step":
            pool.refuse = SystemExit("no second one")
            await released.wait()
        return StepResult({"message": "."}, reward=1.0, done=session.steps == 3)

    engine, pool = make_engine(slow, strategies=hedging(after_s=0.0))
    acquire = pool.acquire

    async def acquire_and_release(timeout_s: float) -> Any:
        if pool.refuse is not None:
            released.set()
        return await acquire(timeout_s)

    pool.acquire = acquire_and_release
    with anyio.fail_after(20):
        (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.reward == 3.0
    assert engine.metrics.get("hedges_won", 0.0) == 0.0


async def test_a_second_session_that_answers_otherwise_is_not_believed(
    make_engine: Any, say: Any, tasks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def own(session: Any) -> str:
        return f"Session {session.number}."

    engine, pool = make_engine(
        slow_first(2, answers=own), strategies=hedging(), limits={"step_timeout_s": 3.0, "max_attempts": 1}
    )
    with anyio.fail_after(20), caplog.at_level(logging.WARNING):
        (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.end_reason is EndReason.STEP_TIMEOUT
    assert engine.metrics["hedge_mismatches"] == 1.0
    assert "cannot be repeated" in caplog.text
    assert all(session.closed for session in pool.sessions)
    assert pool.leased == 0


async def test_an_action_that_the_environment_refuses_is_an_answer(make_engine: Any, say: Any, tasks: Any) -> None:
    async def refuse(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "step" and session.steps == 1:
            if session.number == 0:
                await anyio.sleep_forever()
            raise ActionValidationError("not now")
        return StepResult({"message": "."}, reward=1.0, done=session.steps == 3)

    engine, _ = make_engine(refuse, strategies=hedging())
    with anyio.fail_after(20):
        (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.turns[0].problems == ["Error: not now"]
    assert trajectory.reward == 2.0


async def test_an_environment_that_is_always_slow_is_hedged_only_so_often(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    async def slow(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        await anyio.sleep(0.02)
        return StepResult({"message": "."}, reward=1.0, done=session.steps == 3)

    engine, pool = make_engine(slow, strategies=hedging(after_s=0.0, max_hedges=1))
    (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.reward == 3.0
    assert engine.metrics["hedges"] == 1.0
    assert pool.leased == 0


async def test_cancelling_in_the_middle_of_a_hedge_gives_both_sessions_back(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    both = anyio.Event()

    async def hang(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "step":
            if session.number == 1:
                both.set()
            await anyio.sleep_forever()
        return StepResult({"message": "."})

    engine, pool = make_engine(hang, strategies=hedging())
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run, tasks(1), say(HIT))
            await both.wait()
            group.cancel_scope.cancel()
    assert pool.leased == 0
    assert [session.closed for session in pool.sessions] == [True, True]


async def promise(answer: Any) -> Any:
    async def fetch_promises(base_url: str) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return fetch_promises


@pytest.mark.parametrize(
    ("repeatable", "answer", "told"),
    [
        (None, {"repeatable": False}, "REPEATABLE = True"),
        (None, {"repeatable": "yes"}, "REPEATABLE = True"),
        (None, ProtocolError("404"), "repeatable: true in the straggler"),
        (None, None, "fetch_promises=openenv_trl.client.fetch_promises"),
        (False, {"repeatable": True}, "can be repeated"),
    ],
)
async def test_what_is_not_repeatable_cannot_be_hedged(
    make_engine: Any, say: Any, tasks: Any, repeatable: Any, answer: Any, told: str
) -> None:
    strategies = RolloutStrategies(straggler=HedgeSlowCalls(repeatable=repeatable))
    asked = None if answer is None else await promise(answer)
    engine, pool = make_engine(strategies=strategies, fetch_promises=asked)
    with pytest.raises(ConfigurationError, match=told):
        await engine.run(tasks(1), say(HIT))
    assert pool.leased == 0


async def test_what_declares_itself_repeatable_is_hedged(make_engine: Any, say: Any, tasks: Any) -> None:
    strategies = RolloutStrategies(straggler=HedgeSlowCalls(after_s=0.05))
    engine, _ = make_engine(slow_first(1), strategies=strategies, fetch_promises=await promise({"repeatable": True}))
    (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.reward == 3.0


ENDINGS = st.sampled_from([Outcome(result=1), Outcome(error=ActionValidationError("no")), Outcome(error=OSError())])


@settings(deadline=None)
@given(first=ENDINGS, second=ENDINGS, second_is_quicker=st.booleans(), hedged=st.booleans())
def test_a_race_is_decided_once_by_the_first_answer(
    first: Outcome, second: Outcome, second_is_quicker: bool, hedged: bool
) -> None:
    first, second = replace(first), replace(second)  # two objects, though they be equal
    race = Race(second_runs=hedged)
    ends = [lambda: race.first_ended(first)]
    if hedged:
        ends.insert(0 if second_is_quicker else 1, lambda: race.second_ended(second))
    decided: list[Outcome] = []
    for end in ends:
        end()
        if race.decided.is_set():
            assert race.outcome is not None
            decided.append(race.outcome)
    order = [second, first] if second_is_quicker and hedged else [first, second] if hedged else [first]
    answers = [outcome for outcome in order if outcome.is_answer]
    assert decided[-1] is (answers[0] if answers else first)
    assert all(each is decided[0] for each in decided)
    assert race.second_won == (bool(answers) and answers[0] is second and hedged and answers[0] is not first)
