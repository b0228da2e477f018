"""Text from outside stays text: it is made fit for the tokenizer, and never becomes a control token.

A tokenizer takes the text of a control token for the token wherever it stands. An observation that holds
``<|im_end|><|im_start|>system`` would end its own message and begin another, and an environment that echoes would let
a model write itself a system turn. So such a mark is broken, in plain sight, before anything is rendered:
``< |im_end|>``. Encoding the text apart from its template would not do: templates escape, trim and move texts, and
tokens merge across the seams, so that the dialogue would no longer be what the template renders.
"""

from __future__ import annotations

import re
from typing import Any, cast

from openenv_trl.rollout.bounded_cache import BoundedCache
from openenv_trl.rollout.tokenizer import ChatTokenizer

_ROUNDS = 8  # marks inside marks; more rounds than any tokenizer's marks nest


def encodable(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, which no tokenizer and no file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class ControlTokens:
    """The marks that a tokenizer turns into control tokens.

    These are its special tokens, and the other added tokens that the chat template writes (``<tool_call>``). Added
    tokens beyond those are left alone: some tokenizers have runs of spaces or HTML tags among them.

    Args:
        tokenizer: Whose marks.
        chat_template: The source of the chat template.
    """

    def __init__(self, tokenizer: ChatTokenizer, chat_template: str) -> None:
        self._tokenizer = tokenizer
        added: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict[str, int])()
        details: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
        special = {tokenizer.eos_token_id, *tokenizer.all_special_ids}
        special |= {token for token, detail in details.items() if getattr(detail, "special", False)}
        marks = {cast("str", tokenizer.decode([token], skip_special_tokens=False)): token for token in special}
        marks |= {mark: token for mark, token in added.items() if token in special or mark in chat_template}
        marks = {mark: token for mark, token in marks.items() if _is_mark(mark)}
        self._ids = frozenset(marks.values()) - {getattr(tokenizer, "unk_token_id", None)}
        # Tokens that are not normalised are found by their exact text only; of others, other spellings may be found.
        self._has_other_spellings = any(getattr(details.get(token), "normalized", True) for token in self._ids)
        longest_first = sorted(marks, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if marks else None
        self.defuse = BoundedCache(self._defuse)

    def defuse_all(self, value: Any) -> Any:
        """The value with all its texts defused, of lists and dicts also those inside."""
        if isinstance(value, str):
            return self.defuse(value)[0]
        if isinstance(value, list):
            return [self.defuse_all(inner) for inner in cast("list[Any]", value)]
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return {self.defuse_all(key): self.defuse_all(inner) for key, inner in items}
        return value

    def _defuse(self, text: str) -> tuple[str, int]:
        """The text without marks, made encodable, and how many were broken."""
        text, broken = encodable(text), 0
        if self._pattern is None:
            return text, 0
        for _ in range(_ROUNDS):
            text, found = self._pattern.subn(_break, text)
            broken += found
            if not found:
                break
        if self._has_other_spellings and self._holds_control_token(text):
            # A mark in another spelling, which no pattern knows: leave no punctuation to make one of.
            text, broken = re.sub(r"([^\w\s])(?=\S)", r"\1 ", text), broken + 1
        return text, broken

    def _holds_control_token(self, text: str) -> bool:
        return not self._ids.isdisjoint(self._tokenizer.encode(text, add_special_tokens=False))


def _break(found: re.Match[str]) -> str:
    return f"{found[0][0]} {found[0][1:]}"


def _is_mark(text: str) -> bool:
    """Not where a tokenizer calls an ordinary word, or "!", or a line's end special (often: to pad with)."""
    has_words = any(c.isalnum() for c in text) and not all(c.isalnum() or c.isspace() for c in text)
    return len(text) > 2 and (has_words or (text.startswith("<|") and text.endswith("|>")))  # Gemma quotes with <|"|>
