"""Promises of the dialogue: exact ids, append only, equal lengths, and a template that is checked before it is used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError, PolicyError, SessionStateError
from openenv_trl.rollout import Completion, Dialogue, DialogueTemplate

PROMPT = [{"role": "user", "content": "Play."}]


@pytest.fixture(scope="module")
def template(tokenizer: Any) -> DialogueTemplate:
    from openenv_trl.types import Tool

    return DialogueTemplate(tokenizer, [Tool(name="hit", input_schema={"type": "object", "properties": {}})])


def completion_of(ids: list[int], *, logprobs: bool = True) -> Completion:
    return Completion(ids, [-1.0] * len(ids) if logprobs else None, finished=True)


ids = st.lists(st.integers(0, 399), min_size=1, max_size=12)
answers = st.lists(st.tuples(st.just("hit"), st.text(max_size=30)), min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(turns=st.lists(st.tuples(ids, answers), max_size=4), last=ids, with_logprobs=st.booleans())
def test_sampled_ids_are_kept_bit_for_bit_and_nothing_appended_ever_changes(
    template: DialogueTemplate, turns: list[Any], last: list[int], with_logprobs: bool
) -> None:
    dialogue = Dialogue(template, PROMPT)
    prompt = list(dialogue.prompt_ids)
    sampled: list[int] = []
    before: list[int] = []
    for turn_ids, turn_answers in [*turns, (last, None)]:
        dialogue.append_completion(completion_of(turn_ids, logprobs=with_logprobs))
        sampled += turn_ids
        if turn_answers is not None:
            dialogue.append_answers(turn_answers)
        assert dialogue.completion_ids[: len(before)] == before
        before = list(dialogue.completion_ids)
        assert len(dialogue.completion_ids) == len(dialogue.mask)
        if with_logprobs:
            assert dialogue.logprobs is not None
            assert len(dialogue.logprobs) == len(dialogue.mask)
            assert [p for p, m in zip(dialogue.logprobs, dialogue.mask, strict=True) if not m] == [0.0] * (
                len(dialogue.mask) - sum(dialogue.mask)
            )
        else:
            assert dialogue.logprobs is None
    assert [i for i, m in zip(dialogue.completion_ids, dialogue.mask, strict=True) if m] == sampled
    assert dialogue.prompt_ids == prompt
    assert dialogue.context_ids() == prompt + dialogue.completion_ids


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(text=st.text(max_size=60))
def test_the_pieces_give_what_rendering_the_whole_conversation_gives(
    template: DialogueTemplate, tokenizer: Any, text: str
) -> None:
    said = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "hit", "arguments": {}}}]}
    sampled = template.message_ids(said)
    dialogue = Dialogue(template, PROMPT)
    dialogue.append_completion(completion_of(sampled))
    dialogue.append_answers([("hit", text)])
    whole = tokenizer.apply_chat_template(
        [*PROMPT, said, {"role": "tool", "name": "hit", "content": text}],
        tools=[{"type": "function", "function": {"name": "hit", "description": "", "parameters": _PARAMETERS}}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert dialogue.context_ids() == whole


_PARAMETERS = {"type": "object", "properties": {}}


def test_a_missing_end_token_is_supplied_and_not_trained_on(template: DialogueTemplate, tokenizer: Any) -> None:
    hit = tokenizer.encode("ok", add_special_tokens=False)
    with_end = template.answer_ids([("hit", "x")], [*hit, tokenizer.eos_token_id])
    assert template.answer_ids([("hit", "x")], hit) == [tokenizer.eos_token_id, *with_end]


def test_a_padding_token_that_is_the_end_token_changes_nothing(
    template: DialogueTemplate, new_tokenizer: Any, tools: Any
) -> None:
    same = DialogueTemplate(new_tokenizer(pad_is_eos=True), tools)
    assert same.prompt_ids(PROMPT)[-5:] == template.prompt_ids(PROMPT)[-5:]
    assert same.answer_ids([("hit", "x")], [same.end_id]) == template.answer_ids([("hit", "x")], [template.end_id])


def test_nothing_follows_half_a_message(template: DialogueTemplate) -> None:
    dialogue = Dialogue(template, PROMPT)
    with pytest.raises(SessionStateError, match="has not spoken"):
        dialogue.append_answers([("hit", "x")])
    dialogue.append_completion(Completion([5], [0.0], finished=False))
    with pytest.raises(SessionStateError, match="was cut off"):
        dialogue.append_answers([("hit", "x")])
    with pytest.raises(SessionStateError, match="already spoken"):
        dialogue.append_completion(completion_of([5]))


@pytest.mark.parametrize(
    ("completion", "told"),
    [(Completion([], [], True), "empty completion"), (Completion([1, 2], [0.0], True), "1 log-probs for 2 ids")],
)
def test_a_policy_that_breaks_its_contract_is_told(template: DialogueTemplate, completion: Any, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        Dialogue(template, PROMPT).append_completion(completion)


NO_TOOLS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
NO_ANSWERS = "{% for m in messages if m.role != 'tool' %}{{ m.role }}{{ m.tool_calls }}<|im_end|>{% endfor %}"
RAISES = "{{ raise_exception('Conversation roles must alternate') }}"


@pytest.mark.parametrize(
    ("chat_template", "told"),
    [
        (NO_TOOLS, "drops tool calls or their results"),
        (NO_ANSWERS, "drops tool calls or their results"),
        (RAISES, "roles must alternate"),
    ],
)
def test_a_template_that_cannot_carry_tools_is_refused_with_the_way_out(
    new_tokenizer: Any, tools: Any, chat_template: str, told: str
) -> None:
    tokenizer = new_tokenizer()
    tokenizer.chat_template = chat_template
    with pytest.raises(ConfigurationError, match=rf"{told}.*actions=TextActions"):
        DialogueTemplate(tokenizer, tools)


def test_text_actions_need_no_tools_in_the_template(new_tokenizer: Any) -> None:
    tokenizer = new_tokenizer()
    tokenizer.chat_template = NO_TOOLS + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    template = DialogueTemplate(tokenizer, answer_role="user")
    text = tokenizer.decode(template.answer_ids([("", "So?")], [tokenizer.eos_token_id]))
    assert text == "\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n"


def test_a_tokenizer_without_a_response_template_is_refused_with_the_way_out(new_tokenizer: Any, tools: Any) -> None:
    tokenizer = new_tokenizer()
    tokenizer.response_template = None
    with pytest.raises(ConfigurationError, match=r"Set tokenizer.response_template = .*actions=TextActions"):
        DialogueTemplate(tokenizer, tools)


def test_a_tokenizer_without_a_chat_template_or_an_end_is_refused(new_tokenizer: Any, tools: Any) -> None:
    tokenizer = new_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ConfigurationError, match="no chat template"):
        DialogueTemplate(tokenizer, tools)
    tokenizer = new_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(ConfigurationError, match="no end token"):
        DialogueTemplate(tokenizer, tools)


def test_a_template_whose_messages_run_together_is_refused(new_tokenizer: Any) -> None:
    tokenizer = new_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigurationError, match="do not end with a token of their own"):
        DialogueTemplate(tokenizer, answer_role="user")


def test_an_observation_may_hold_anything(template: DialogueTemplate, tokenizer: Any) -> None:
    for text in ("", " ", "\n\nx\n", "{{ jinja }}", "é\u0000🂡"):
        ids = template.answer_ids([("hit", text)], [tokenizer.eos_token_id])
        assert tokenizer.decode(ids).startswith("\n<|im_start|>user<tool_response>\n" + text)


def changed(response_template: Any, **fields: Any) -> dict[str, Any]:
    return {key: value for key, value in (response_template | fields).items() if value is not None}


@pytest.mark.parametrize(
    "fields",
    [
        {"start_anchor": None},
        {"fields": {"content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"}}},
    ],
)
def test_a_response_template_that_reads_no_call_of_the_chat_template_is_refused_at_the_start(
    new_tokenizer: Any, tools: Any, fields: dict[str, Any]
) -> None:
    tokenizer = new_tokenizer()
    tokenizer.response_template = changed(tokenizer.response_template, **fields)
    with pytest.raises(ConfigurationError, match=r"does not read the tool calls.*Set tokenizer.response_template"):
        DialogueTemplate(tokenizer, tools)


def test_a_parser_that_raises_is_refused_at_the_start(new_tokenizer: Any, tools: Any) -> None:
    tokenizer = new_tokenizer()

    def parse_response(response: Any, prefix: str = "") -> Any:
        raise RecursionError("too deep")

    tokenizer.parse_response = parse_response
    with pytest.raises(ConfigurationError, match="RecursionError: too deep"):
        DialogueTemplate(tokenizer, tools)


def test_a_schema_that_no_call_can_be_drawn_from_is_no_reason_to_refuse(tokenizer: Any) -> None:
    from openenv_trl.types import Tool

    schema = {"properties": {"x": {"type": "odd"}}, "required": ["x"]}
    DialogueTemplate(tokenizer, [Tool(name="odd", input_schema=schema)])
