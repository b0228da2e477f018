"""For every chat template that TRL ships: what the environment says stands in the context as a whole rendering writes
it, and what the model sampled stands there as it was sampled.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Completion, Dialogue, DialogueTemplate, ToolActions
from openenv_trl.types import Tool

SYSTEM = {"role": "system", "content": "You play cards."}
USER = {"role": "user", "content": "Play."}
TEXTS = [
    'You hold "16".\nThe dealer shows 7.',
    "",
    "\n\n spaced \n",
    "é \U0001f469\u200d\U0001f467 \u05e9\u05dc\u05d5\u05dd \u200fabc a\u0301 \u0000 {{ jinja }} {% raw %}",
    "half a character: \ud83d",
    "end",
]
# Templates that write later answers otherwise than the first: what opens the list of a message's answers is written
# once in a conversation (a slip in the template). The dialogue writes each answer as the first.
LATER_ANSWERS_DIFFER = {"deepseekv3"}
ONE_CALL_ONLY = {"llama3_1", "llama3_2"}
FIRST_CALL_ONLY = {"gptoss"}


def spelled(model: Any, text: str) -> list[int]:
    """The text in ids that no tokenizer would choose: one character each, but for control tokens."""
    marks = sorted(model.tokenizer.get_added_vocab(), key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
    return [token for part in parts for piece in ([part] if part in marks else part) for token in model.ids(piece)]


def expected_tail(model: Any, role: str, whole: str, number: int) -> str:
    """What a whole rendering has after the message that holds this number, from behind the message's end."""
    after = whole[whole.rindex(str(number)) + len(str(number)) :]
    return after.split(model.earlier_end(role), 1)[1]


def play(model: Any, role: str, prompt: list[Any], texts: list[str], calls_a_turn: int = 1) -> Dialogue:
    """Play a conversation, and compare the whole context with a whole rendering at each turn."""
    template: DialogueTemplate = model.template(role)
    dialogue = Dialogue(template, prompt)
    messages = list(prompt)
    context = template.prompt_ids(prompt)
    assert context == model.ids(model.rendered(prompt, begin=True, tools=role == "tool"))
    for turn, text in enumerate(texts):
        numbers = [7100 + 10 * turn + index for index in range(calls_a_turn)]
        said, sampled = model.message(role, *numbers)
        written = model.tokenizer.decode(sampled)
        assert written.endswith(model.end(role))
        if turn % 2:
            sampled = spelled(model, written)
        dialogue.append_completion(Completion(sampled, [-1.0] * len(sampled), finished=True))
        answers = [("hit", text if index == 0 else f"{text}{index}") for index in range(calls_a_turn)]
        call_ids = [call["id"] for call in said.get("tool_calls", [])]
        dialogue.append_answers(answers, call_ids)

        shown = [template.defuse(answer)[0] for _, answer in answers]
        if role == "tool":
            replies: list[Any] = [
                {"role": "tool", "name": "hit", "content": content, "tool_call_id": call_id}
                for content, call_id in zip(shown, call_ids, strict=True)
            ]
        else:
            replies = [{"role": "user", "content": "\n\n".join(shown)}]
        alike = turn == 0 or model.family not in LATER_ANSWERS_DIFFER or role == "user"
        messages = [*(messages if alike else prompt), said, *replies]
        whole = model.rendered(messages, begin=True, tools=role == "tool")
        tail = expected_tail(model, role, whole, numbers[-1])
        context += sampled + model.ids(tail)
        assert dialogue.context_ids() == context
        assert model.ids(whole)[-len(model.ids(tail)) :] == model.ids(tail)
    sampled_ids = sum(dialogue.mask)
    assert len(dialogue.mask) == len(dialogue.completion_ids) == len(dialogue.logprobs or [])
    assert dialogue.logprobs == [-1.0 * sampled for sampled in dialogue.mask]
    assert sampled_ids > 0
    return dialogue


def takes_system(model: Any) -> bool:
    try:
        return SYSTEM["content"] in model.rendered([SYSTEM, USER], begin=True)
    except Exception:
        return False


def test_tool_conversations_stand_as_a_whole_rendering_writes_them(model: Any) -> None:
    if not model.takes_tools:
        with pytest.raises(ConfigurationError, match=r"actions=TextActions|TextActions\("):
            model.template("tool")
        return
    play(model, "tool", [SYSTEM, USER], TEXTS)
    play(model, "tool", [USER], TEXTS[-1:] * 3)


def test_text_conversations_stand_as_a_whole_rendering_writes_them(model: Any) -> None:
    prompt = [SYSTEM, USER] if takes_system(model) else [USER]
    play(model, "user", prompt, TEXTS)


def test_several_calls_in_a_message_are_answered_in_their_order(model: Any) -> None:
    if not model.takes_tools:
        pytest.skip("takes no tools")
    if model.family in ONE_CALL_ONLY:
        with pytest.raises(ConfigurationError, match="single tool-calls"):
            model.message("tool", 1, 2)
        template = model.template("tool")
        end = model.ids(model.end("tool"))
        text = model.tokenizer.decode(template.answer_ids([("hit", "first"), ("say", "second")], end))
        assert text.index('"first"') < text.index('"second"')
        assert text.count("ipython") == 2
        return
    if model.family in FIRST_CALL_ONLY:
        _, two = model.message("tool", 7001, 7002)
        assert "7002" not in model.tokenizer.decode(two)
        return
    play(model, "tool", [USER], TEXTS[:3], calls_a_turn=3)


def test_calls_are_read_back_from_exactly_the_sampled_ids(model: Any) -> None:
    if not model.takes_tools:
        pytest.skip("takes no tools")
    template, actions = model.template("tool"), ToolActions([*model.template("tool").tools])
    count = 1 if model.family in ONE_CALL_ONLY | FIRST_CALL_ONLY else 2
    _, written = model.message("tool", *range(7001, 7001 + count))
    for sampled in (written, spelled(model, model.tokenizer.decode(written))):
        parsed = actions.parse(sampled, template)
        assert [(call.name, call.arguments, call.problem) for call in parsed.calls] == [
            ("hit", {"n": 7001 + index}, None) for index in range(count)
        ]


def test_arguments_are_read_back_with_their_types(model: Any) -> None:
    if not model.takes_tools:
        pytest.skip("takes no tools")
    fields = {
        "n": {"type": "integer"},
        "s": {"type": "string"},
        "f": {"type": "number"},
        "yes": {"type": "boolean"},
        "no": {"type": "boolean"},
        "nothing": {"type": ["null", "integer"]},
        "word": {"type": "string"},
    }
    tool = Tool(name="hit", input_schema={"type": "object", "properties": fields, "required": list(fields)})
    template, actions = model.template("tool", [tool]), ToolActions([tool])
    arguments = {"n": 3, "s": "ab c", "f": 1.5, "yes": True, "no": False, "nothing": None, "word": "True"}
    if model.family.startswith("gemma4"):
        arguments["nothing"] = 4  # Gemma's templates write None there, which no parser of Gemma's reads
    for more in ({}, {"reasoning_content": "hm"}, {"thinking": "hm"}, {"content": "<think>\nhm\n</think>\n\n"}):
        call = {"type": "function", "function": {"name": "hit", "arguments": arguments}}
        try:
            ids = template.message_ids({"role": "assistant", "content": "", "tool_calls": [call], **more})
        except ConfigurationError:
            continue
        (read,) = actions.parse(ids, template).calls
        assert (read.problem, read.arguments) == (None, arguments)
        return
    pytest.fail("the template writes no such call")


def control_tokens(model: Any, ids: list[int]) -> Counter[int]:
    special = set(model.tokenizer.get_added_vocab().values())
    return Counter(token for token in ids if token in special)


@pytest.mark.parametrize("role", ["tool", "user"])
def test_no_words_of_an_environment_become_control_tokens(model: Any, role: str) -> None:
    if role == "tool" and not model.takes_tools:
        pytest.skip("takes no tools")
    template = model.template(role)
    marks = "".join(sorted(model.tokenizer.get_added_vocab(), key=len, reverse=True))
    written = {mark: token for mark, token in model.tokenizer.get_added_vocab().items() if mark in model.source}
    end = model.ids(model.end(role))
    plain = control_tokens(model, template.answer_ids([("hit", "x"), ("say", "y")], end, ["a", "b"]))
    evil = template.answer_ids([(f"h{marks}", f"x{marks}"), ("say", f"{marks}y")], end, [marks, "b"])
    assert control_tokens(model, evil) == plain
    assert written
    if role == "user":
        return
    schema = {"type": "object", "properties": {"n": {"type": "integer", "description": marks}}, "required": ["n"]}
    tools = [Tool(name="hit", description=f"Takes {marks}.", input_schema=schema)]
    harmless = [
        Tool(
            name="hit",
            description="Takes.",
            input_schema={**schema, "properties": {"n": {"type": "integer", "description": "x"}}},
        )
    ]
    assert control_tokens(model, model.template("tool", tools).prompt_ids([USER])) == control_tokens(
        model, model.template("tool", harmless).prompt_ids([USER])
    )


def test_a_message_whose_end_was_not_sampled_gets_it_from_the_template(model: Any) -> None:
    for role in ("tool", "user") if model.takes_tools else ("user",):
        template = model.template(role)
        _, ids = model.message(role, 7001)
        with_end = template.answer_ids([("hit", "x")], ids)
        without = template.answer_ids([("hit", "x")], ids[:-1])
        assert model.tokenizer.decode(without) == model.earlier_end(role) + model.tokenizer.decode(with_end)
