"""Seeds that make sampling repeatable whatever is batched with what, and in whatever order prompts come."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

_PROMPTS_KEPT = 65536


class PromptSeeds:
    """A seed for each completion of each prompt, made of the prompt's ids and how often it was asked before.

    So equal prompts (the generations of a group) get seeds of their own, and the same run gets the same ones again.

    Args:
        seed: What all of them are made of; None gives none.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._asked: dict[bytes, int] = {}

    def next(self, prompt: Sequence[int]) -> int | None:
        """A seed of 31 bits for one more completion of this prompt."""
        if self._seed is None:
            return None
        key = hashlib.blake2b(array("q", prompt).tobytes(), digest_size=12).digest()
        if len(self._asked) >= _PROMPTS_KEPT and key not in self._asked:
            self._asked.pop(next(iter(self._asked)))
        count = self._asked[key] = self._asked.get(key, -1) + 1
        digest = hashlib.blake2b(key + f"{self._seed}:{count}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") >> 1
