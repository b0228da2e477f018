"""Results of tool calls: as JSON, in the order of the calls, each with the id of its call."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np
import pytest

from openenv_trl.rollout import observation_text
from openenv_trl.types import StepResult

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Card:
    rank: int


RESULTS: list[tuple[Any, str]] = [
    ({"a": [1, 2.5, True, None]}, '{"a":[1,2.5,true,null]}'),
    (None, "null"),
    (True, "true"),
    (3, "3"),
    ("plain text", "plain text"),
    (datetime.date(2026, 1, 2), '"2026-01-02"'),
    (datetime.datetime(2026, 1, 2, 3, 4), '"2026-01-02T03:04:00"'),
    (np.arange(4).reshape(2, 2), "[[0,1],[2,3]]"),
    (np.float32(1.5), "1.5"),
    (np.bool_(True), "true"),
    ({"nan": float("nan")}, '{"nan":null}'),
    (Card(3), '{"rank":3}'),
    ({1: "a"}, '{"1":"a"}'),
    ((1, 2), "[1,2]"),
    (2**70, str(2**70)),
    ("\ud83d", "\ud83d"),
]


@pytest.mark.parametrize(("result", "text"), RESULTS, ids=[repr(result)[:30] for result, _ in RESULTS])
def test_a_tools_result_is_json_and_no_words_of_python(result: Any, text: str) -> None:
    assert observation_text({"tool_name": "look", "result": result}) == text


async def test_several_calls_are_answered_in_their_order_with_their_ids(
    make_engine: Any, say: Any, tasks: Any, tokenizer: Any
) -> None:
    async def counts(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            return StepResult({"message": "Go."})
        name = argument["tool_name"]
        return StepResult({"tool_name": name, "result": {"step": session.steps, "name": name}}, 1.0, session.steps == 6)

    two = (
        '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'
        '<tool_call>{"name": "bet", "arguments": {"amount": 1}, "id": "mine"}</tool_call>'
        '<tool_call>{"name": "none", "arguments": {}}</tool_call>'
    )
    engine, _ = make_engine(counts, limits={"max_completion_tokens": 4000, "max_invalid_actions": 9})
    (trajectory,) = await engine.run(tasks(1), say(two))
    calls = [call for message in trajectory.messages for call in message.get("tool_calls", [])]
    answers = [message for message in trajectory.messages if message["role"] == "tool"]
    ids = [call["id"] for call in calls]
    assert ids[:6] == ["call00000", "mine", "call00002", "call00003", "mine", "call00005"]
    assert [answer["tool_call_id"] for answer in answers] == ids[: len(answers)]
    assert [answer["name"] for answer in answers[:3]] == ["hit", "bet", "none"]
    assert answers[0]["content"] == '{"step":1,"name":"hit"}'
    text = tokenizer.decode(trajectory.completion_ids)
    assert text.index('"step":1') < text.index('"step":2') < text.index("there is no tool 'none'")
