"""Thoughts of reasoning models: kept as they were sampled, or left out as the chat template leaves them out."""

from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import Completion, Dialogue, DialogueTemplate, TextActions
from openenv_trl.rollout.dialogue import SegmentedDialogue

PROMPT = [{"role": "user", "content": "Play."}]


def thoughtful(model: Any, turn: int) -> tuple[dict[str, Any], list[int]]:
    """A message with thoughts, and the ids that a model would sample to write it."""
    said = {"role": "assistant", "content": f"Move {turn}"}
    template = model.template("user")
    for field in ("reasoning_content", "thinking"):
        try:
            ids = template.message_ids({**said, field: f"Hm {turn}."})
        except ConfigurationError:
            continue
        if f"Hm {turn}." in model.tokenizer.decode(ids):
            return {**said, field: f"Hm {turn}."}, ids
    message = {**said, "content": f"<think>\nHm {turn}.\n</think>\n\nMove {turn}"}
    begun = model.rendered(PROMPT, begin=True).rstrip().endswith("<think>")
    text = message["content"].removeprefix("<think>\n") if begun else message["content"]
    return message, model.ids(text + model.end("user"))


def test_the_context_is_what_the_template_renders_of_messages_with_thoughts(model: Any) -> None:
    template = DialogueTemplate(model.tokenizer, answer_role="user", thoughts="template")
    drops = "Hm 0." not in model.rendered([*PROMPT, thoughtful(model, 0)[0], PROMPT[0]], begin=True)
    assert template.drops_thoughts == drops
    if not drops or model.family == "qwen3_5_nothink":  # whose models do not think
        return
    dialogue = SegmentedDialogue(template, PROMPT)
    messages: list[Any] = list(PROMPT)
    for turn in range(3):
        said, sampled = thoughtful(model, turn)
        dialogue.append_completion(Completion(sampled, None, finished=True))
        dialogue.append_answers([("", f"Answer {turn}.")])
        messages += [said, {"role": "user", "content": f"Answer {turn}."}]
        whole = model.rendered(messages, begin=True)
        assert f"Hm {turn}." not in whole
        assert model.tokenizer.decode(dialogue.context_ids()) == whole
        assert dialogue.earlier[turn].completion_ids == sampled
        assert sum(dialogue.earlier[turn].mask) == len(sampled)


def test_thoughts_in_dialogues_of_tool_calls_are_kept_by_every_template(model: Any) -> None:
    if not model.takes_tools:
        pytest.skip("takes no tools")
    tools = [*model.template("tool").tools]
    assert DialogueTemplate(model.tokenizer, tools, thoughts="template").drops_thoughts is False


def test_kept_thoughts_stay_where_the_template_would_drop_them(model: Any) -> None:
    template = model.template("user")
    dialogue = Dialogue(template, PROMPT)
    context = template.prompt_ids(PROMPT)
    for turn in range(3):
        _, sampled = thoughtful(model, turn)
        dialogue.append_completion(Completion(sampled, None, finished=True))
        dialogue.append_answers([("", f"Answer {turn}.")])
        context += sampled + template.answer_ids([("", f"Answer {turn}.")], sampled)
        assert dialogue.context_ids() == context
        thoughts, text = template.split_thoughts(sampled)
        assert text.strip() == f"Move {turn}"
        assert f"Hm {turn}." in thoughts


def test_text_actions_read_what_is_said_and_not_what_is_thought(model: Any) -> None:
    seen: list[str] = []

    def parse(text: str) -> dict[str, Any]:
        seen.append(text.strip())
        return {"move": text}

    _, sampled = thoughtful(model, 7)
    turn = TextActions(parse).parse(sampled, model.template("user"))
    assert seen == ["Move 7"]
    assert turn.message["content"].strip() == "Move 7"
    assert "Hm 7." in turn.message["reasoning_content"]
