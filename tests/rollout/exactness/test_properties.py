"""Properties of any dialogue: whatever is sampled, in whatever ids, and whatever the environment says."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openenv_trl.rollout import Completion, Dialogue, DialogueTemplate, SamplingParameters
from openenv_trl.types import StepResult, Tool

PROMPT = [{"role": "system", "content": "You play."}, {"role": "user", "content": "Play."}]
SETTINGS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60, derandomize=True
)
SPACES = ["", " ", "\n", "\n\n ", "\t"]
PIECES = st.sampled_from(
    ["<|im_end|>", "<|im_start|>system\n", "<|endoftext|>", "<tool_call>", "</tool_response>", "{{ x }}", "é", "\ud83d",
     "\u202eabc", "a\u0301", "\U0001f469\u200d\U0001f467", '"', "\\n", "\u0000", "16"]
)  # fmt: skip
texts = st.builds(
    lambda before, pieces, after: before + "".join(pieces) + after,
    st.sampled_from(SPACES),
    st.lists(PIECES | st.text(max_size=6), max_size=6),
    st.sampled_from(SPACES),
)
# Any ids at all: what a model samples is seldom what a tokenizer would make of the text.
sampled_ids = st.lists(st.integers(0, 399), min_size=1, max_size=14)
logprob = st.floats(-30, 0, allow_nan=False).filter(lambda value: value != 0.0)
answers = st.lists(st.tuples(st.sampled_from(["hit", "say", "no such tool"]), texts), min_size=1, max_size=3)
turns = st.lists(st.tuples(sampled_ids, answers), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def template(tokenizer: Any) -> DialogueTemplate:
    schema = {"type": "object", "properties": {}}
    return DialogueTemplate(tokenizer, [Tool(name="hit", input_schema=schema), Tool(name="say", input_schema=schema)])


@SETTINGS
@given(turns=turns, data=st.data())
def test_each_context_is_the_one_before_and_what_was_sampled_and_what_was_answered(
    template: DialogueTemplate, turns: list[Any], data: Any
) -> None:
    dialogue = Dialogue(template, PROMPT)
    context, places, given_logprobs = template.prompt_ids(PROMPT), [], []
    assert dialogue.context_ids() == context
    for ids, said in turns:
        logprobs = data.draw(st.lists(logprob, min_size=len(ids), max_size=len(ids)))
        dialogue.append_completion(Completion(tuple(ids), tuple(logprobs), finished=True))
        places += range(len(context), len(context) + len(ids))
        given_logprobs += logprobs
        call_ids = [f"call{index}" for index in range(len(said))]
        appended = template.answer_ids(said, ids, call_ids)
        dialogue.append_answers(said, call_ids)
        context = context + ids + appended
        assert dialogue.context_ids() == context
    start = len(dialogue.prompt_ids)
    assert len(dialogue.completion_ids) == len(dialogue.mask) == len(dialogue.logprobs or [])
    assert [start + index for index, value in enumerate(dialogue.mask) if value] == places
    assert [context[place] for place in places] == [token for ids, _ in turns for token in ids]
    assert [(dialogue.logprobs or [])[place - start] for place in places] == given_logprobs
    others = [value for value, kept in zip(dialogue.logprobs or [], dialogue.mask, strict=True) if not kept]
    assert others == [0.0] * len(others)


@SETTINGS
@given(said=answers)
def test_answers_hold_the_control_tokens_of_plain_ones_and_no_others(
    template: DialogueTemplate, tokenizer: Any, said: list[Any]
) -> None:
    special = set(tokenizer.all_special_ids)
    plain = [("hit", "x")] * len(said)
    ids = template.answer_ids(said, [tokenizer.eos_token_id])
    expected = template.answer_ids(plain, [tokenizer.eos_token_id])
    assert [token for token in ids if token in special] == [token for token in expected if token in special]
    shown = tokenizer.decode(ids)
    place = 0
    for _, text in said:
        place = shown.index(template.defuse(text)[0], place)


CALL = '<tool_call>{"name": "say", "arguments": {}}</tool_call><|im_end|>'


@SETTINGS
@given(said=st.lists(texts, min_size=1, max_size=4), spoken=st.lists(sampled_ids, min_size=1, max_size=4))
def test_a_run_gives_the_row_that_was_sampled(
    make_engine: Any, tokenizer: Any, tasks: Any, said: list[str], spoken: list[list[int]]
) -> None:
    async def answers_in_turn(session: Any, call: str, argument: Any) -> StepResult[dict[str, Any]]:
        if call == "reset":
            return StepResult({"message": said[0]})
        return StepResult({"message": said[session.steps % len(said)]}, 1.0, session.steps == len(said))

    call_ids = tokenizer.encode(CALL, add_special_tokens=False)
    special = set(tokenizer.all_special_ids)
    seen: list[tuple[list[int], list[int]]] = []

    class Free:
        async def generate(self, prompts: Any, sampling: SamplingParameters) -> list[Completion]:
            (prompt,) = prompts
            free = [token for token in spoken[len(seen) % len(spoken)] if token not in special]
            seen.append((list(prompt), free + call_ids))
            return [Completion(free + call_ids, [-0.25] * len(free + call_ids), finished=True)]

    tools = [Tool(name="say", input_schema={"type": "object", "properties": {}})]
    limits = {"max_completion_tokens": 100_000, "max_attempts": 1, "max_invalid_actions": 100}
    engine, _ = make_engine(answers_in_turn, tools=tools, limits=limits)
    (trajectory,) = anyio.run(engine.run, tasks(1), Free())
    row = trajectory.prompt_ids + trajectory.completion_ids
    for prompt, ids in seen:
        assert row[: len(prompt) + len(ids)] == prompt + ids
    assert sum(trajectory.mask) == sum(len(ids) for _, ids in seen)
    assert trajectory.drift == 0
    assert engine.metrics["drift"] == 0.0
