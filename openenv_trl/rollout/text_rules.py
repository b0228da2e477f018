"""What is done to texts from outside before a model reads them, with a tokenizer or without one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from openenv_trl.rollout.observation_cut import Cut, shorten
from openenv_trl.rollout.plain_text import encodable
from openenv_trl.rollout.task import Message

CHARACTERS_OF_A_TOKEN = 4
"""What a token is taken for where there is no tokenizer: about the mean of English text in current vocabularies."""

_MARK = re.compile(
    r"<\|[^<>|\n]{1,40}\|>"  # <|im_end|>, <|eot_id|>, ...: ChatML, Llama 3, gpt-oss, GLM, Phi
    r"|<\uff5c[^<>\n]{1,40}\uff5c>"  # DeepSeek's, with full-width bars
    r"|</?s>|<(?:bos|eos|start_of_turn|end_of_turn)>"  # Llama 2, Mistral, Gemma
    r"|\[/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|</?(?:tool_call|tool_response)>"
)


class TextRules(Protocol):
    """Makes texts of environments fit to be read. A `DialogueTemplate` fits."""

    def defuse(self, text: str) -> tuple[str, int]:
        """The text with marks of control tokens broken, and how many there were."""
        ...

    def shorten(self, text: str, max_tokens: int, cut: Cut = "tail") -> tuple[str, int]:
        """The text cut to so many tokens, with a note where it was cut, and the number of tokens dropped."""
        ...

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a prompt; empty where there are none to know."""
        ...


class PlainTextRules:
    """The rules without a tokenizer: four characters count as a token, and the marks of well-known models are broken.

    A server turns ``<|im_end|>`` in a message into the control token, as it does with its template's own, so an
    environment could end its own message and begin another.
    """

    def defuse(self, text: str) -> tuple[str, int]:
        """The text with the marks of well-known models broken, made encodable, and how many there were."""
        text, broken = encodable(text), 0
        while True:
            text, found = _MARK.subn(lambda mark: f"{mark[0][0]} {mark[0][1:]}", text)
            broken += found
            if not found:
                return text, broken

    def shorten(self, text: str, max_tokens: int, cut: Cut = "tail") -> tuple[str, int]:
        """The text cut to four characters a token, with a note where it was cut, and the number of tokens dropped."""
        return shorten(text, max_tokens, cut, encode=_fours, decode=_text_of_fours)

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """None: there is no tokenizer."""
        return []


def token_count(text: str) -> int:
    """About how many tokens a text has, where there is no tokenizer."""
    return -(-len(text) // CHARACTERS_OF_A_TOKEN)


def _fours(text: str) -> list[int]:
    """Each four characters as a number."""
    data = text.encode("utf-32-le")
    width = 4 * CHARACTERS_OF_A_TOKEN
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]


def _text_of_fours(fours: Sequence[int]) -> str:
    width = 4 * CHARACTERS_OF_A_TOKEN
    return b"".join(four.to_bytes(width, "little") for four in fours).decode("utf-32-le").rstrip("\0")
