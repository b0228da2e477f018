"""Every chat template that TRL ships, each with a small tokenizer that knows its control tokens.

The templates are found in the installed package: a new one is tested as soon as it is there, and where nothing is known
of how its models end their messages, the test says so.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import DialogueTemplate
from openenv_trl.types import Tool

TOOLS = [
    Tool(
        name="hit",
        description="Take a card.",
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    ),
    Tool(
        name="say",
        description="Say something.",
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    ),
]

# What a model samples to end a tool call, and to end a text; and what the template writes there in earlier messages,
# where that is something else. The first mark that a template's source holds decides.
ENDS: list[tuple[str, str, str, str | None]] = [
    ("<|im_end|>", "<|im_end|>", "<|im_end|>", None),
    ("<|eot_id|>", "<|eot_id|>", "<|eot_id|>", None),
    ("<|tool_response>", "<|tool_response>", "<turn|>", None),
    ("<end_of_turn>", "", "<end_of_turn>", None),
    ("<|END_OF_TURN_TOKEN|>", "", "<|END_OF_TURN_TOKEN|>", None),
    ("<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>", None),
    ("<|call|>", "<|call|>", "<|return|>", "<|end|>"),
    ("<|observation|>", "<|observation|>", "<|user|>", None),
    ("<|eot|>", "<|eot|>", "<|eot|>", None),
    ("<|end|>", "", "<|end|>", None),
    ("<end_of_utterance>", "", "<end_of_utterance>", None),
    ("[/INST]", "", "</s>", None),
]
MARK = re.compile(
    r"<\|[A-Za-z_0-9]+\|?>|<[a-z_]+\|>|<[|｜][^|｜>]{1,40}[|｜]>|<(?:start|end)_of_[a-z_]+>|\[gMASK\]|<sop>|</?s>"
    r"|</?think>|</?tool_call>|</?tool_response>|\[/?INST\]"
)
NOT_SPECIAL = re.compile(r"</?think>|</?tool_call>|</?tool_response>|\[/?INST\]")  # added, but decoded as text

_FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
# For templates with tool calls that TRL has no parser of: what a user would set.
USERS_OWN: dict[str, dict[str, Any]] = {
    "deepseekv3": {
        "defaults": {"role": "assistant"},
        "start_anchor": "<｜Assistant｜>",
        "fields": {
            "tool_calls": {
                "open_pattern": r"(?:<｜tool▁calls▁begin｜>|\n)?<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
                r"(?P<name>\S+)\n```json\n",
                "close_pattern": r"\n```<｜tool▁call▁end｜>(?:<｜tool▁calls▁end｜>)?",
                "repeats": True,
                "content": "json",
                "transform": _FUNCTION,
            },
            "content": {"close_pattern": r"<｜end▁of▁sentence｜>\s*|$", "content": "text"},
        },
    },
    "muse_glimmer": {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|start|>assistant",
        "fields": {
            "tool_calls": {
                "open_pattern": r"(?:<\|start\|>assistant)? to=\S+<\|message\|><atem:function_calls>\n"
                r"<atem:invoke name=\"(?P<name>[^\"]+)\">\n",
                "close_pattern": r"</atem:invoke>\n</atem:function_calls>(?:<\|eom\|>)?",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<atem:parameter name=\"(?P<key>[^\"]+)\">(?P<value>.*?)</atem:parameter>",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": _FUNCTION,
            },
            "content": {"close_pattern": r"<\|eot\|>\s*|$", "content": "text"},
        },
    },
}


def folder() -> Path | None:
    spec = importlib.util.find_spec("trl")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "chat_templates"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model" in metafunc.fixturenames:
        found = folder()
        names = sorted(path.stem for path in found.glob("*.jinja")) if found else []
        metafunc.parametrize("model", names, indirect=True, scope="session")


@dataclass
class Model:
    """What is known of one template: enough to speak as its models do."""

    name: str
    source: str
    tokenizer: Any
    ends: tuple[str, str, str | None]
    templates: dict[Any, DialogueTemplate] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.name.removesuffix("_training")

    @cached_property
    def takes_tools(self) -> bool:
        """What TRL itself says."""
        from trl.chat_template_utils import supports_tool_calling

        return supports_tool_calling(self.tokenizer)

    def template(self, role: str, tools: Any = None) -> DialogueTemplate:
        if tools is not None or role not in self.templates:
            offered = [] if role == "user" else TOOLS if tools is None else tools
            made = DialogueTemplate(self.tokenizer, offered, answer_role=role)  # type: ignore[arg-type]
            if tools is not None:
                return made
            self.templates[role] = made
        return self.templates[role]

    def end(self, role: str) -> str:
        """What the model samples at the end of a message that is answered in this role."""
        end = self.ends[0] if role == "tool" else self.ends[1]
        return "<turn|>" if self.family == "gemma4_v2" else end

    def earlier_end(self, role: str) -> str:
        return self.end(role) if role == "tool" else self.ends[2] or self.ends[1]

    def message(self, role: str, *numbers: int) -> tuple[dict[str, Any], list[int]]:
        """A message of the model's that holds these numbers, and the ids that a model would sample to write it."""
        calls = [
            {"type": "function", "id": f"call{n:05d}", "function": {"name": "hit", "arguments": {"n": n}}}
            for n in numbers
        ]
        plain: dict[str, Any] = {"role": "assistant", "content": "" if role == "tool" else f"Move {numbers[0]}"}
        if role == "tool":
            plain["tool_calls"] = calls
        thought = "<think>\nhm\n</think>\n\n" + plain["content"]
        template = self.template(role)
        refusal: ConfigurationError | None = None
        for more in ({}, {"reasoning_content": "hm"}, {"thinking": "hm"}, {"content": thought}):
            try:
                return {**plain, **more}, template.message_ids({**plain, **more})
            except ConfigurationError as error:
                refusal = refusal or error
        assert refusal is not None
        if role == "user" and "</think>" in self.source:  # never written back with the thoughts it was begun with
            return {**plain, "content": thought}, self.ids(thought.removeprefix("<think>\n") + self.end(role))
        raise refusal

    def rendered(self, messages: list[Any], *, begin: bool, tools: bool = False) -> str:
        definitions = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
            }
            for t in TOOLS
        ]
        # The forms that some templates want: arguments as JSON text, contents as blocks.
        if self.name == "deepseekv3":
            messages = [_with_text_arguments(message) for message in messages]
        if self.family in ("idefics3", "smolvlm", "llava_next"):
            messages = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages]
        return self.tokenizer.apply_chat_template(
            messages, tools=definitions if tools else None, add_generation_prompt=begin, tokenize=False
        )

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)


def _with_text_arguments(message: dict[str, Any]) -> dict[str, Any]:
    import json

    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", [])
    ]
    return {**message, "tool_calls": calls} if calls else message


def make_model(name: str, new_tokenizer: Callable[[], Any]) -> Model:
    from tokenizers import AddedToken
    from trl.chat_template_utils import add_response_schema, gemma4_template

    found = folder()
    assert found is not None
    source = (found / f"{name}.jinja").read_text(encoding="utf-8")
    ends = next((ends for mark, *ends in ENDS if mark in source), None)
    assert ends is not None, f"{name} is new: tell in ENDS with which token its models end their messages"
    tokenizer = new_tokenizer()
    tokenizer.response_template = None
    original = found / f"{name.removesuffix('_training')}.jinja"
    tokenizer.chat_template = original.read_text(encoding="utf-8") if original.exists() else source
    try:
        add_response_schema(tokenizer)
    except ValueError:
        users_own = {**USERS_OWN, "diffusion_gemma": gemma4_template}
        tokenizer.response_template = users_own.get(name.removesuffix("_training"))
    tokenizer.chat_template = source
    marks = {*MARK.findall(source), *(end for end in ends if end)}
    special = sorted(mark for mark in marks if not NOT_SPECIAL.fullmatch(mark))
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in sorted(marks - set(special))])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.eos_token = ends[1]
    tokenizer.bos_token = "<|endoftext|>"
    return Model(name, source, tokenizer, (ends[0], ends[1], ends[2]))


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest, new_tokenizer: Callable[[], Any]) -> Model:
    pytest.importorskip("trl")
    return make_model(request.param, new_tokenizer)
