"""The chat templates that TRL ships: what follows a message must be what a whole rendering gives, for each of them."""

from __future__ import annotations

import importlib.util
import random
import re
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.rollout import DialogueTemplate, ToolActions
from openenv_trl.types import Tool

# The end token is the one that these models sample to end a tool call.
TEMPLATES = {
    "qwen2_5": "<|im_end|>",
    "qwen3_training": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
    "qwen3_5_nothink": "<|im_end|>",
    "lfm2_2_5": "<|im_end|>",
    "llama3_1": "<|eot_id|>",
    "gptoss": "<|call|>",
    "glm4moe_training": "<|observation|>",
    "gemma4": "<|tool_response>",
    "muse_glimmer": "<|eot|>",
}
MARK = re.compile(r"<\|[a-z_]+\|?>|<[a-z_]+\|>")
CALL = {"type": "function", "function": {"name": "hit", "arguments": {}}}


def tokenizer_for(name: str, new_tokenizer: Any) -> Any:
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        pytest.skip("trl is not installed")
    path = Path(spec.origin).parent / "chat_templates" / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"this version of trl ships no template of {name}")
    tokenizer = new_tokenizer()
    set_parser(tokenizer, path.with_name(f"{name.removesuffix('_training')}.jinja").read_text())
    tokenizer.chat_template = path.read_text()
    marks = sorted({*MARK.findall(tokenizer.chat_template), "<|im_start|>"} - {"<|im_end|>", "<|endoftext|>"})
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.bos_token = "<|endoftext|>"
    return tokenizer


def set_parser(tokenizer: Any, chat_template: str) -> None:
    from trl.chat_template_utils import add_response_schema

    if "<atem:invoke" not in chat_template:
        tokenizer.chat_template = chat_template
        add_response_schema(tokenizer)
        return

    def parse_response(response: list[int], prefix: str) -> dict[str, Any]:  # TRL knows no parser of this one
        names = re.findall(r'<atem:invoke name="(\w+)">', tokenizer.decode(response))
        return {"role": "assistant", "tool_calls": [{"name": name, "arguments": {}} for name in names]}

    tokenizer.parse_response = parse_response


# Among them Llama's, which refuses two calls in one message, and such as type the arguments by the tool's schema.
@pytest.mark.parametrize("name", [*sorted(TEMPLATES.keys() - {"muse_glimmer"}), "llama3_2", "qwen3_vl", "lfm2_v2"])
def test_a_call_that_the_template_writes_is_read_back(name: str, new_tokenizer: Any) -> None:
    fields = {"n": {"type": "integer"}, "s": {"type": "string"}, "f": {"type": "number"}}
    tool = Tool(name="hit", input_schema={"type": "object", "properties": fields, "required": list(fields)})
    actions = ToolActions([tool])
    template = DialogueTemplate(tokenizer_for(name, new_tokenizer), [tool])
    said = actions.sample(random.Random(1))
    (call,) = actions.parse(template.message_ids(said), template).calls
    assert call.problem is None
    assert call.arguments == said["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_environments_text_never_becomes_control_tokens_of_the_template(name: str, new_tokenizer: Any) -> None:
    tokenizer = tokenizer_for(name, new_tokenizer)
    template = DialogueTemplate(tokenizer, [Tool(name="hit", input_schema={"type": "object", "properties": {}})])
    end = tokenizer.convert_tokens_to_ids(TEMPLATES[name])
    marks = "".join(tokenizer.all_special_tokens)
    plain = template.answer_ids([("hit", "x")], [end])
    evil = template.answer_ids([(f"h{marks}", f"x{marks}")], [end])
    special = set(tokenizer.all_special_ids)
    assert [i for i in evil if i in special] == [i for i in plain if i in special]


@pytest.mark.parametrize("name", TEMPLATES)
def test_answers_are_appended_as_a_whole_rendering_writes_them(name: str, new_tokenizer: Any) -> None:
    tokenizer = tokenizer_for(name, new_tokenizer)
    template = DialogueTemplate(tokenizer, [Tool(name="hit", input_schema={"type": "object", "properties": {}})])
    stand_in: list[Any] = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
    ]
    for text in ('You hold "16".', " spaced \n", ""):
        answer = {"role": "tool", "name": "hit", "content": text}
        whole = tokenizer.apply_chat_template([*stand_in, answer], add_generation_prompt=True, tokenize=False)
        end = tokenizer.convert_tokens_to_ids(TEMPLATES[name])
        appended = tokenizer.decode(template.answer_ids([("hit", text)], [end]))
        assert whole.endswith(TEMPLATES[name] + appended)
        assert text.strip() in appended.replace("\\n", "\n").replace('\\"', '"')


def test_thoughts_that_a_template_drops_from_history_stay_in_the_dialogue(new_tokenizer: Any) -> None:
    tokenizer = tokenizer_for("qwen3", new_tokenizer)
    template = DialogueTemplate(tokenizer, answer_role="user")
    sampled = tokenizer.encode("<think>\nhm\n</think>\n\nhit<|im_end|>", add_special_tokens=False)
    answer = tokenizer.decode(template.answer_ids([("", "Go on.")], sampled))
    assert answer == "\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
