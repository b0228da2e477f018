"""A tiny causal language model that speaks a tool-calling protocol, made on the spot: for tests, CPUs and first runs.

The tokenizer's words come from the environment's own texts. A clause that the environment says again and again
(" Sum 16,") is one word, so a short sentence is a few tokens and each tells by itself what it is about, which a model
of one layer can use; a tool call without arguments is three tokens and the end of the message. What is not in the
vocabulary is spelled out. The chat template is in the style of ChatML, keeps prefixes, and has a response template, so
that transformers' parser reads the model's tool calls, and TRL and the rollout engine take it like any large model's.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.types import Tool

PAD, UNKNOWN, MESSAGE_START, MESSAGE_END = "<|endoftext|>", "<|unk|>", "<|im_start|>", "<|im_end|>"

CLAUSE = re.compile(r"[^,.:;!?\n]*[,.:;!?\n]")
"""Text up to and with a punctuation mark."""
_WORD = re.compile(r" ?\w+")
_CLAUSE_COUNT = 8
"""A clause said so many times becomes a word of its own."""

_CALL_START = '<tool_call>\n{"name": "'
_CALL_ARGUMENTS = '", "arguments": '
_CALL_END = "}\n</tool_call>"

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\nTools:' }}
{%- for tool in tools %}
{%- set tool = tool.function or tool %}
{{- ' ' + tool.name + '(' + (tool.parameters.properties or {}) | join(', ') + ')' }}
{%- endfor %}
{{- '<|im_end|>' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- set call = call.function or call %}
{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
{{- call.arguments if call.arguments is string else call.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

RESPONSE_TEMPLATE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def make_tokenizer(texts: Iterable[str], tools: Sequence[Tool]) -> Any:
    """A word-level tokenizer with a tool-calling chat template.

    Args:
        texts: What the environment and the prompts say: its words become the vocabulary.
        tools: What the model can call: their names and arguments are words too.

    Returns:
        A ``PreTrainedTokenizerFast`` with ``chat_template`` and ``response_template``; decoding gives back the text
        exactly.

    Raises:
        ConfigurationError: There are no tools to call.
    """
    from tokenizers import AddedToken, Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    if not tools:
        raise ConfigurationError("A tiny policy needs at least one tool to call, and the environment has none.")
    roles = [f"{MESSAGE_START}{role}\n" for role in ("system", "user", "assistant", "tool")]
    special = [PAD, UNKNOWN, MESSAGE_START, MESSAGE_END, *roles]
    offered = [f" {tool.name}({', '.join(tool.input_schema.get('properties', {}))})" for tool in tools]
    phrases = ["Tools:", *offered, "\n\n", _CALL_START, _CALL_ARGUMENTS + "{}" + _CALL_END, _CALL_ARGUMENTS, _CALL_END]
    named = [tool.name for tool in tools]
    for tool in tools:
        named += [str(name) for name in tool.input_schema.get("properties", {})]
    clauses: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for text in texts:
        clauses.update(CLAUSE.findall(text))
        words.update(_WORD.findall(text))
    said = [clause for clause, count in clauses.items() if count >= _CLAUSE_COUNT and len(clause) > 1]
    known = [word for word in words if len(word) > 1]
    letters = ["\n", *(chr(code) for code in range(32, 127))]
    pieces = dict.fromkeys([*phrases, *named, *(f" {name}" for name in named), *said, *known, *letters])
    vocabulary = {w: index for index, w in enumerate([*special, *pieces])}

    core = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    # Phrases, names and clauses first, then whole known words; what is left is spelled out, character by character.
    first, whole = (
        "|".join(re.escape(piece) for piece in sorted(dict.fromkeys(group), key=len, reverse=True)) or "(?!)"
        for group in ([*phrases, *said, *named], known)
    )
    core.pre_tokenizer = Split(Regex(rf"{first}|(?:{whole})(?!\w)|[\s\S]"), behavior="isolated")
    core.decoder = Fuse()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=MESSAGE_END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer


def make_model(tokenizer: Any, *, layers: int = 2, hidden_size: int = 64, seed: int = 0) -> Any:
    """A Qwen3 model of about a hundred thousand parameters, with random weights.

    Args:
        tokenizer: Decides the vocabulary and the special ids.
        layers: Transformer layers.
        hidden_size: Width; a multiple of 16.
        seed: Decides the weights.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    if hidden_size % 16:
        raise ConfigurationError(f"tiny_policy_hidden_size={hidden_size} must be a multiple of 16.")
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=hidden_size // 4,
        max_position_embeddings=tokenizer.model_max_length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def make_tiny_policy(
    path: str | Path,
    texts: Iterable[str],
    tools: Sequence[Tool],
    *,
    layers: int = 2,
    hidden_size: int = 64,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Make the tokenizer and the model and save both.

    Args:
        path: Folder to save them in.
        texts: See `make_tokenizer`.
        tools: See `make_tokenizer`.
        layers: See `make_model`.
        hidden_size: See `make_model`.
        seed: See `make_model`.

    Returns:
        The model and the tokenizer.
    """
    tokenizer = make_tokenizer(texts, tools)
    model = make_model(tokenizer, layers=layers, hidden_size=hidden_size, seed=seed)
    tokenizer.save_pretrained(path)
    model.save_pretrained(path)
    return model, tokenizer
