"""A text that is too long for the dialogue, cut where its reader loses least, with a note of what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

Cut = Literal["tail", "head", "middle"]
"""What is left out of a text: its end (of a document), its beginning (of a log), or its middle (of a program's
output)."""

_LONGEST_TOKEN = 64  # characters; a text of more for each token that is kept is never encoded as a whole


def shorten(
    text: str,
    max_tokens: int,
    cut: Cut,
    *,
    encode: Callable[[str], Sequence[int]],
    decode: Callable[[Sequence[int]], str],
) -> tuple[str, int]:
    """The text cut to so many tokens, with a note in place of what is missing, and how many tokens that was.

    What is kept is kept as it was: characters that a cut goes through are left out. Of a text so long that to encode
    it would hold up everyone, the number of tokens is estimated from its ends.

    Args:
        text: The text.
        max_tokens: Tokens that are kept; those of the note come on top.
        cut: What is left out.
        encode: Text to ids.
        decode: Ids to text.
    """
    most = 2 * _LONGEST_TOKEN * (max_tokens + 1)
    if len(text) > 2 * most:
        ends = encode(text[:most]), encode(text[-most:])
        count = max(round(len(text) / (2 * most) * (len(ends[0]) + len(ends[1]))), max_tokens + 1)
        about = "about "
    else:
        ids = encode(text)
        ends, count, about = (ids, ids), len(ids), ""
    dropped = count - max_tokens
    if dropped <= 0:
        return text, 0
    note = f"[... {about}{dropped} tokens cut ...]" if cut == "middle" else f"[... {about}{dropped} tokens cut]"
    before = {"tail": max_tokens, "head": 0, "middle": max_tokens - max_tokens // 2}[cut]
    after = max_tokens - before if cut != "tail" else 0
    parts = (
        _beginning(text, decode(ends[0][:before])) if before else "",
        note,
        _ending(text, decode(ends[1][-after:])) if after else "",
    )
    return " ".join(part for part in parts if part), dropped


def _beginning(text: str, decoded: str) -> str:
    """The longest beginning that text and decoded text share: tokenizers do not all give back what they took."""
    return text[: _shared(text, decoded)] if decoded.strip("\ufffd") else ""


def _ending(text: str, decoded: str) -> str:
    shared = _shared(text[: -len(decoded) - 1 : -1], decoded[::-1])
    return text[len(text) - shared :] if shared else ""


def _shared(first: str, second: str) -> int:
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    return next(index for index in range(length) if first[index] != second[index])
