"""The tiny policy's tokenizer is exact, and its tool calls are read by the parser that large models' are read by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.chat_template_utils import is_chat_template_prefix_preserving

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.tiny_policy import make_tiny_policy, make_tokenizer
from openenv_trl.types import Tool

TEXTS = [
    "Play blackjack.",
    "Your hand: 10, 6. Sum 16, no usable ace. The dealer shows 7.",
    "Sum 21, usable ace.",
]
PLAIN = [Tool(name="hit"), Tool(name="stand")]
GUESS = Tool(
    name="guess",
    input_schema={"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(TEXTS * 8, [*PLAIN, GUESS])


def rendered(tokenizer: Any, *messages: dict[str, Any], **kwargs: Any) -> str:
    return tokenizer.apply_chat_template(list(messages), tokenize=False, **kwargs)


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=40))
def test_decoding_gives_any_plain_text_back_exactly(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_clause_that_is_said_again_and_again_is_one_token(tokenizer: Any) -> None:
    assert tokenizer.tokenize("Your hand: 10, 6. Sum 16, no usable ace. The dealer shows 7.") == [
        "Your hand:",
        " 10,",
        " 6.",
        " Sum 16,",
        " no usable ace.",
        " The dealer shows 7.",
    ]


def test_what_was_never_said_is_spelled_out(tokenizer: Any) -> None:
    assert tokenizer.tokenize(" Sum 97,") == [" Sum", " ", "9", "7", ","]


def test_a_tool_call_without_arguments_is_three_tokens_and_the_end(tokenizer: Any) -> None:
    user = {"role": "user", "content": TEXTS[0]}
    before = rendered(tokenizer, user, add_generation_prompt=True)
    after = rendered(tokenizer, user, call("hit", {}))
    assert after.startswith(before)
    ids = tokenizer.encode(after[len(before) :].rstrip("\n"))
    assert len(ids) == 4
    assert ids[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize(("name", "arguments"), [("hit", {}), ("stand", {}), ("guess", {"number": 42})])
def test_the_parser_of_transformers_reads_what_the_template_writes(
    tokenizer: Any, name: str, arguments: dict[str, Any]
) -> None:
    user = {"role": "user", "content": TEXTS[0]}
    before = rendered(tokenizer, user, add_generation_prompt=True)
    reply = rendered(tokenizer, user, call(name, arguments))[len(before) :]
    parsed = tokenizer.parse_response(tokenizer.encode(reply), prefix=tokenizer.encode(before))
    function = parsed["tool_calls"][0]["function"]
    assert (function["name"], function["arguments"]) == (name, arguments)


def test_trl_finds_the_template_prefix_preserving(tokenizer: Any) -> None:
    assert is_chat_template_prefix_preserving(tokenizer)


def test_tools_are_shown_to_the_model(tokenizer: Any) -> None:
    schemas = [
        {"type": "function", "function": {"name": t.name, "parameters": t.input_schema}} for t in [*PLAIN, GUESS]
    ]
    text = rendered(tokenizer, {"role": "user", "content": "x"}, tools=schemas)
    assert "Tools: hit() stand() guess(number)" in text


def test_saved_and_loaded_again_it_is_the_same(tmp_path: Path) -> None:
    model, tokenizer = make_tiny_policy(tmp_path, TEXTS, PLAIN, seed=3)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.encode(TEXTS[1]) == tokenizer.encode(TEXTS[1])
    assert again.chat_template == tokenizer.chat_template
    assert again.response_template == tokenizer.response_template
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.num_parameters() == model.num_parameters() < 300_000


def test_an_environment_without_tools_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one tool"):
        make_tokenizer(TEXTS, [])
