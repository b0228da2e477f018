"""Promises about tools: what is checked, what is drawn, and what a schema becomes."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from openenv_trl.rollout import RandomActionPolicy, SamplingParameters, ScriptedPolicy, ToolActions, observation_text
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.tool_schema import argument_problem, random_arguments, tools_from_schema
from openenv_trl.types import Action, Tool


class Move(BaseModel):
    x: int
    y: int = 0


class Everything(Action):
    """Do anything."""

    kind: Literal["a", "b"]
    move: Move
    amount: float
    note: str | None
    flags: list[bool]
    level: int = 3


TOOL = tools_from_schema(Everything.model_json_schema())[0]
VALID: dict[str, Any] = {"kind": "a", "move": {"x": 1}, "amount": 1, "note": None, "flags": [True]}


def test_an_action_schema_becomes_one_tool_without_metadata() -> None:
    assert TOOL.name == "act"
    assert TOOL.description == "Do anything."
    assert set(TOOL.input_schema["properties"]) == {"kind", "move", "amount", "note", "flags", "level"}
    assert TOOL.input_schema["required"] == ["kind", "move", "amount", "note", "flags"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"level": 4.0}, None),
        ({"note": "hi"}, None),
        ({"kind": "c"}, "'kind' of 'act' must be one of 'a', 'b', not 'c'"),
        ({"amount": "1"}, "'amount' of 'act' must be of type number, not '1'"),
        ({"amount": True}, "'amount' of 'act' must be of type number, not True"),
        ({"move": [1]}, "'move' of 'act' must be of type object, not [1]"),
        ({"note": 3}, "'note' of 'act' must be of type string or of type null, not 3"),
        ({"metadata": {}}, "'act' has no 'metadata'; it takes 'kind', 'move', 'amount', 'note', 'flags', 'level'"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], problem: str | None) -> None:
    assert argument_problem(TOOL, {**VALID, **change}) == problem


def test_missing_arguments_are_named() -> None:
    assert argument_problem(TOOL, {"kind": "a"}) == "'act' needs 'move', 'amount', 'note', 'flags'"
    assert argument_problem(TOOL, "x") == "the arguments of 'act' must be a JSON object, not string"


def test_random_arguments_are_valid_and_uniform() -> None:
    generator = random.Random(0)
    drawn = [random_arguments(TOOL, generator) for _ in range(400)]
    for arguments in drawn:
        assert argument_problem(TOOL, arguments) is None
        Everything.model_validate(arguments)
    assert 150 < sum(arguments["kind"] == "a" for arguments in drawn) < 250


def test_random_numbers_keep_their_bounds() -> None:
    field = {"type": "integer", "minimum": 3, "exclusiveMaximum": 6}
    tool = Tool(name="t", input_schema={"properties": {"n": field}, "required": ["n"]})
    assert {random_arguments(tool, random.Random(seed))["n"] for seed in range(40)} == {3, 4, 5}


@pytest.mark.anyio
async def test_a_random_policy_writes_calls_that_are_read_back(tokenizer: Any, tools: Any) -> None:
    actions = ToolActions(tools)
    template = DialogueTemplate(tokenizer, tools)
    policy = RandomActionPolicy(template, actions, seed=1)
    completions = await policy.generate([[1]] * 60, SamplingParameters(max_new_tokens=200))
    parsed = [actions.parse(completion.ids, template) for completion in completions]
    assert {turn.calls[0].name for turn in parsed} == {"hit", "bet"}
    assert all(turn.problem is None and turn.calls[0].problem is None for turn in parsed)
    assert all(c.finished and c.ids[-1] == tokenizer.eos_token_id for c in completions)


@pytest.mark.anyio
async def test_a_script_may_say_messages_text_or_ids_within_the_limit(tokenizer: Any, tools: Any) -> None:
    template = DialogueTemplate(tokenizer, tools)
    script = iter(["hello", [5, 6], {"role": "assistant", "content": "hello"}])
    policy = ScriptedPolicy(template, lambda prompt: next(script))
    text, ids, message = await policy.generate([[1]] * 3, SamplingParameters(max_new_tokens=200))
    assert text == message
    assert (list(ids.ids), ids.finished) == ([5, 6], True)
    (cut,) = await ScriptedPolicy(template, lambda prompt: [5, 6]).generate([[1]], SamplingParameters(max_new_tokens=1))
    assert (list(cut.ids), cut.finished) == ([5], False)


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({"message": "Hello.", "text": "no", "metadata": {}}, "Hello."),
        ({"message": "", "prompt": "Solve it."}, "Solve it."),
        ({"message": 3, "metadata": {"a": 1}, "done": False, "reward": None}, '{"message":3}'),
        ({"tool_name": "add", "result": {"content": [], "data": 3}, "error": None}, "3"),
        ({"tool_name": "add", "result": "three", "error": None}, "three"),
        ({"tool_name": "x", "result": None, "error": {"error_type": "t", "message": "Unknown"}}, "Error: Unknown"),
        ("plain", "plain"),
        ({}, ""),
        ({"metadata": {"a": 1}, "done": False, "reward": None}, ""),
        ({"message": "", "metadata": {}}, ""),
        ({"message": "", "text": "", "error": None}, ""),
        ({"message": "", "board": [0]}, '{"message":"","board":[0]}'),
        ({"board": 2**70}, '{"board":1180591620717411303424}'),
        ({"board": "\ud83d"}, '{"board":"\\ud83d"}'),
    ],
)
def test_the_text_of_an_observation_and_nothing_where_it_has_none(observation: Any, text: str) -> None:
    assert observation_text(observation) == text
