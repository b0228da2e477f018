"""Promises of one episode: what it brings back, and why it ended."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import anyio
import numpy as np
import pytest
import torch

from openenv_trl.errors import (
    ActionValidationError,
    EnvironmentExecutionError,
    ProtocolError,
    SessionCapacityError,
    SessionLostError,
)
from openenv_trl.rollout import EndReason, RolloutLimits, TextActions, Trajectory
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'


async def play(
    make_engine: Any, policy: Any, tasks: Any, behave: Any = None, **settings: Any
) -> tuple[Trajectory, Any]:
    engine, pool = make_engine(**({"behave": behave} if behave else {}), **settings)
    (trajectory,) = await engine.run(tasks(1), policy)
    assert pool.leased == 0
    assert len(trajectory.completion_ids) == len(trajectory.mask) == len(trajectory.logprobs or trajectory.mask)
    return trajectory, pool


async def test_a_played_episode_sums_its_rewards_and_keeps_the_sampled_ids(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any
) -> None:
    policy = say(HIT)
    trajectory, pool = await play(make_engine, policy, tasks)
    assert trajectory.end_reason is EndReason.DONE
    assert trajectory.reward == 3.0
    assert trajectory.step_rewards == [1.0, 1.0, 1.0]
    sampled = tokenizer.encode(HIT + "<|im_end|>", add_special_tokens=False)
    assert [i for i, m in zip(trajectory.completion_ids, trajectory.mask, strict=True) if m] == sampled * 3
    assert [p for p, m in zip(trajectory.logprobs or [], trajectory.mask, strict=True) if not m] == [0.0] * (
        len(trajectory.mask) - sum(trajectory.mask)
    )
    # What the policy was given last is what the trainer will see before the last message.
    assert policy.prompts[-1] == trajectory.prompt_ids + trajectory.completion_ids[: -len(sampled)]
    assert pool.sessions[0].calls[1] == ("step", {"type": "call_tool", "tool_name": "hit", "arguments": {}})


async def test_the_whole_dialogue_is_what_the_chat_template_renders(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any
) -> None:
    trajectory, _ = await play(make_engine, say(HIT), tasks)
    definitions = [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.input_schema}}
        for t in (await _tools(make_engine))
    ]
    rendered = tokenizer.apply_chat_template(trajectory.messages[:-1], tools=definitions, tokenize=False)
    assert tokenizer.decode(trajectory.prompt_ids + trajectory.completion_ids) == rendered.removesuffix("\n")
    assert trajectory.messages[0] == {"role": "user", "content": "Play.\n\nBegin 0."}
    assert trajectory.first_observation == "Begin 0."


async def _tools(make_engine: Any) -> Any:
    engine, _ = make_engine()
    await engine.prepare()
    return engine.actions.tools


async def test_reset_gets_the_tasks_arguments(make_engine: Any, say: Any, tasks: Any) -> None:
    _, pool = await play(make_engine, say(HIT), tasks)
    assert pool.sessions[0].calls[0] == ("reset", {"seed": 0})


async def test_several_calls_in_one_message_are_taken_in_order_until_done(
    make_engine: Any, say: Any, tasks: Any, tool_call: Any
) -> None:
    policy = say(tool_call("bet", amount=1) + HIT + tool_call("bet", amount=2) + HIT)
    trajectory, pool = await play(make_engine, policy, tasks)
    assert trajectory.end_reason is EndReason.DONE
    names = [action["tool_name"] for what, action in pool.sessions[0].calls if what == "step"]
    assert names == ["bet", "hit", "bet"]
    assert len(trajectory.turns) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<tool_call>{"name": "hit", "argu</tool_call>', "could not be read"),
        (
            '<tool_call>{"name": "fold", "arguments": {}}</tool_call>',
            "there is no tool 'fold'. The tools are: hit, bet",
        ),
        ('<tool_call>{"name": "bet", "arguments": {}}</tool_call>', "'bet' needs 'amount'"),
        ('<tool_call>{"name": "bet", "arguments": {"amount": 1.5}}</tool_call>', "must be of type integer, not 1.5"),
        ('<tool_call>{"name": "hit", "arguments": {"x": 1}}</tool_call>', "'hit' has no 'x'; it takes no arguments"),
        ('<tool_call>{"name": "hit", "arguments": [1]}</tool_call>', "must be a JSON object, not array"),
        ("<tool_call>[1, 2]</tool_call>", "a tool call must be"),
    ],
)
async def test_an_invalid_call_is_answered_and_the_environment_does_not_move(
    make_engine: Any, say: Any, tasks: Any, text: str, told: str
) -> None:
    trajectory, pool = await play(make_engine, say(text, HIT), tasks)
    assert trajectory.end_reason is EndReason.DONE
    assert told in trajectory.turns[0].observations[0]
    assert trajectory.invalid_actions == 1
    assert sum(what == "step" for what, _ in pool.sessions[0].calls) == 3
    assert trajectory.reward == 3.0


async def test_too_many_invalid_actions_end_the_episode(make_engine: Any, say: Any, tasks: Any) -> None:
    trajectory, _ = await play(make_engine, say("<tool_call>{</tool_call>"), tasks, limits={"max_invalid_actions": 2})
    assert trajectory.end_reason is EndReason.INVALID_ACTION
    assert trajectory.invalid_actions == 3
    assert trajectory.reward == 0.0


async def test_an_action_that_the_environment_refuses_is_the_models_mistake(
    make_engine: Any, say: Any, tasks: Any
) -> None:
    async def refuse_first(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "step" and session.steps == 1:
            raise ActionValidationError("amount must be positive")
        return StepResult({"message": "Fine."}, reward=1.0, done=call == "step")

    trajectory, pool = await play(make_engine, say(HIT), tasks, refuse_first)
    assert trajectory.end_reason is EndReason.DONE
    assert trajectory.turns[0].observations == ["Error: amount must be positive"]
    assert (trajectory.attempts, trajectory.reward, trajectory.invalid_actions) == (1, 1.0, 1)
    assert pool.free == pool.sessions


async def test_a_refused_action_leaves_the_session_healthy(make_engine: Any, say: Any, tasks: Any) -> None:
    async def refuse(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "step":
            raise ActionValidationError("no")
        return StepResult({"message": "."})

    trajectory, pool = await play(make_engine, say(HIT), tasks, refuse, limits={"max_invalid_actions": 0})
    assert trajectory.end_reason is EndReason.INVALID_ACTION
    assert pool.free == pool.sessions


async def test_a_message_without_a_tool_call_ends_the_episode(make_engine: Any, say: Any, tasks: Any) -> None:
    trajectory, _ = await play(make_engine, say(HIT, "I am done."), tasks)
    assert trajectory.end_reason is EndReason.NO_ACTION
    assert trajectory.reward == 1.0


async def test_the_limit_of_turns_ends_the_episode_with_its_reward(make_engine: Any, say: Any, tasks: Any) -> None:
    trajectory, _ = await play(make_engine, say(HIT), tasks, limits={"max_turns": 2})
    assert trajectory.end_reason is EndReason.MAX_TURNS
    assert trajectory.reward == 2.0
    assert trajectory.mask[-1] == 1


async def test_the_limit_of_tokens_is_never_passed(make_engine: Any, say: Any, tasks: Any) -> None:
    whole, _ = await play(make_engine, say(HIT), tasks)
    for limit in (1, 5, len(whole.completion_ids) // 2, len(whole.completion_ids) - 1, len(whole.completion_ids)):
        trajectory, _ = await play(make_engine, say(HIT), tasks, limits={"max_completion_tokens": limit})
        assert len(trajectory.completion_ids) <= limit
        assert trajectory.completion_ids == whole.completion_ids[: len(trajectory.completion_ids)]
        expected = EndReason.DONE if limit == len(whole.completion_ids) else EndReason.MAX_TOKENS
        assert trajectory.end_reason is expected


async def test_a_message_cut_by_its_limit_is_not_acted_on(make_engine: Any, say: Any, tasks: Any) -> None:
    trajectory, pool = await play(make_engine, say(HIT), tasks, limits={"max_new_tokens_per_turn": 4})
    assert trajectory.end_reason is EndReason.MAX_TOKENS
    assert len(trajectory.completion_ids) == 4
    assert [what for what, _ in pool.sessions[0].calls] == ["reset"]


async def test_an_environments_own_limit_is_a_truncation(make_engine: Any, say: Any, tasks: Any) -> None:
    async def truncate(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"n": 1, "metadata": {"truncated": True}}, reward=0.5, done=call == "step")

    trajectory, _ = await play(make_engine, say(HIT), tasks, truncate)
    assert trajectory.end_reason is EndReason.TRUNCATED
    assert trajectory.reward == 0.5
    assert trajectory.first_observation == '{"n":1}'


async def test_a_long_observation_is_cut_openly_and_counted(make_engine: Any, say: Any, tasks: Any) -> None:
    async def talk(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"message": "word " * 100}, reward=0.0, done=session.steps == 2)

    trajectory, _ = await play(make_engine, say(HIT), tasks, talk, limits={"max_observation_tokens": 10})
    assert trajectory.turns[0].truncated_observation_tokens > 100
    assert trajectory.turns[0].observations[0].endswith("tokens cut]")


async def fails_with(error: Exception, at: str) -> Any:
    async def behave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == at:
            raise error
        return StepResult({"message": "."}, reward=0.0)

    return behave


@pytest.mark.parametrize("at", ["reset", "step"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EnvironmentExecutionError("division by zero"), EndReason.ENVIRONMENT_ERROR),
        (SessionLostError("the socket closed"), EndReason.SESSION_LOST),
        (ConnectionResetError("reset by peer"), EndReason.SESSION_LOST),
        (ProtocolError("not a frame"), EndReason.PROTOCOL_ERROR),
        (KeyError("board"), EndReason.ENVIRONMENT_ERROR),
    ],
)
async def test_what_an_environment_raises_is_the_end_reason_of_its_episode(
    make_engine: Any, say: Any, tasks: Any, error: Exception, reason: EndReason, at: str
) -> None:
    trajectory, pool = await play(make_engine, say(HIT), tasks, await fails_with(error, at))
    assert trajectory.end_reason is reason
    assert trajectory.reward is None
    assert trajectory.attempts == 3
    assert str(error) in (trajectory.error or "")
    used = [session for session in pool.sessions if session.calls]
    assert len(used) == 3
    assert all(session.closed for session in used)


@pytest.mark.parametrize(
    ("at", "limit", "reason"),
    [
        ("reset", "reset_timeout_s", EndReason.RESET_TIMEOUT),
        ("step", "step_timeout_s", EndReason.STEP_TIMEOUT),
        ("step", "episode_timeout_s", EndReason.EPISODE_TIMEOUT),
        ("step", "batch_timeout_s", EndReason.BATCH_TIMEOUT),
    ],
)
async def test_a_call_that_hangs_ends_by_its_deadline(
    make_engine: Any, say: Any, tasks: Any, at: str, limit: str, reason: EndReason
) -> None:
    async def hang(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == at:
            await anyio.sleep_forever()
        return StepResult({"message": "."})

    trajectory, pool = await play(make_engine, say(HIT), tasks, hang, limits={limit: 0.25, "max_attempts": 2})
    assert trajectory.end_reason is reason
    assert trajectory.reward is None
    assert all(session.closed for session in pool.sessions if session.calls)


def one_step_of(reward: Any) -> Any:
    """An environment whose first step ends the episode with this reward."""

    async def behave(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"message": "."}, reward=reward if call == "step" else None, done=call == "step")

    return behave


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.nan)], ids=repr)
async def test_a_reward_that_is_no_finite_number_fails_the_episode(
    make_engine: Any, say: Any, tasks: Any, reward: float
) -> None:
    trajectory, pool = await play(make_engine, say(HIT), tasks, one_step_of(reward))
    assert trajectory.end_reason is EndReason.INVALID_REWARD
    assert trajectory.reward is None
    assert [session.closed for session in pool.sessions] == [True] * 3


@pytest.mark.parametrize(
    "reward",
    [np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5), Decimal("0.5"), Fraction(1, 2)],
    ids=repr,
)
async def test_a_reward_may_be_a_number_of_any_library(make_engine: Any, say: Any, tasks: Any, reward: Any) -> None:
    trajectory, _ = await play(make_engine, say(HIT), tasks, one_step_of(reward))
    assert (trajectory.end_reason, trajectory.reward, type(trajectory.reward)) == (EndReason.DONE, 0.5, float)


@pytest.mark.parametrize("reward", [True, np.bool_(True), torch.tensor(True), torch.tensor(1)], ids=repr)
async def test_a_reward_that_is_a_truth_or_a_whole_number_counts_as_one(
    make_engine: Any, say: Any, tasks: Any, reward: Any
) -> None:
    trajectory, _ = await play(make_engine, say(HIT), tasks, one_step_of(reward))
    assert (trajectory.end_reason, trajectory.reward, type(trajectory.reward)) == (EndReason.DONE, 1.0, float)


@pytest.mark.parametrize("reward", ["0.5", np.array([0.5]), [0.5], 1j, np.str_("1")], ids=repr)
async def test_a_reward_that_is_no_number_fails_the_episode(
    make_engine: Any, say: Any, tasks: Any, reward: Any
) -> None:
    trajectory, _ = await play(make_engine, say(HIT), tasks, one_step_of(reward))
    assert trajectory.end_reason is EndReason.PROTOCOL_ERROR
    assert "the reward is no number but" in (trajectory.error or "")


async def test_a_reward_lost_on_the_wire_is_never_taken_for_zero(make_engine: Any, say: Any, tasks: Any) -> None:
    async def last_is_null(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        done = session.steps == 2
        return StepResult({"message": "."}, reward=None if done else 0.5, done=done)

    trajectory, _ = await play(make_engine, say(HIT), tasks, last_is_null)
    assert trajectory.end_reason is EndReason.INVALID_REWARD


async def test_an_environment_that_rewards_nothing_gives_no_reward(make_engine: Any, say: Any, tasks: Any) -> None:
    async def silent(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        return StepResult({"message": "."}, done=session.steps == 2)

    trajectory, _ = await play(make_engine, say(HIT), tasks, silent)
    assert trajectory.end_reason is EndReason.DONE
    assert trajectory.reward is None


async def test_no_free_session_in_time_ends_the_episode_with_capacity(make_engine: Any, say: Any, tasks: Any) -> None:
    engine, pool = make_engine()
    await engine.prepare()
    pool.refuse = SessionCapacityError(4, 4)
    (trajectory,) = await engine.run(tasks(1), say(HIT))
    assert trajectory.end_reason is EndReason.CAPACITY
    assert "4/4" in (trajectory.error or "")
    row = trajectory.as_row(7)
    assert (row.completion_ids, row.mask, row.logprobs) == ([7], [0], [0.0])
    assert row.prompt_ids


async def test_text_actions_are_read_by_the_users_function(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any
) -> None:
    actions = TextActions(
        lambda text: {"guess": int(text)} if text.strip().isdigit() else None, format_hint="Write a number."
    )
    trajectory, pool = await play(make_engine, say("hm", "7"), tasks, tools=[], actions=actions)
    assert trajectory.end_reason is EndReason.DONE
    assert [action for what, action in pool.sessions[0].calls if what == "step"] == [{"guess": 7}] * 3
    assert trajectory.turns[0].observations == ["Write a number."]
    assert "<|im_start|>user\nWrite a number.<|im_end|>" in tokenizer.decode(trajectory.completion_ids)


async def test_an_environment_without_tools_is_offered_as_one_tool(
    make_engine: Any, say: Any, tasks: Any, tool_call: Any
) -> None:
    async def fetch_schema(base_url: str) -> dict[str, Any]:
        properties = {"move": {"enum": ["hit", "stand"], "title": "Move"}, "metadata": {"type": "object"}}
        return {"action": {"properties": properties, "required": ["move"], "type": "object"}}

    trajectory, pool = await play(
        make_engine, say(tool_call("act", move="stand")), tasks, tools=[], fetch_schema=fetch_schema
    )
    assert trajectory.end_reason is EndReason.DONE
    assert pool.sessions[0].calls[1] == ("step", {"move": "stand"})


def test_limits_refuse_unknown_fields() -> None:
    with pytest.raises(ValueError, match="max_turn"):
        RolloutLimits(max_turn=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("reward", [np.float32(0.5), np.float64(0.5), np.int64(1), True])
async def test_any_real_number_is_a_reward(make_engine: Any, say: Any, tasks: Any, reward: Any) -> None:
    trajectory, _ = await play(make_engine, say(HIT), tasks, one_step_of(reward))
    assert (trajectory.end_reason, trajectory.reward) == (EndReason.DONE, float(reward))
    assert type(trajectory.reward) is float
