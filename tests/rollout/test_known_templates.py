"""The chat templates that TRL ships: what follows a message must be what a whole rendering gives, for each of them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.rollout import DialogueTemplate
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
    tokenizer.chat_template = path.read_text()
    marks = sorted({*MARK.findall(tokenizer.chat_template), "<|im_start|>"} - {"<|im_end|>", "<|endoftext|>"})
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.bos_token = "<|endoftext|>"
    return tokenizer


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
