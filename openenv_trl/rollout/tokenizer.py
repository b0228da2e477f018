"""What the engine needs of a tokenizer: any of transformers' with a chat template fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class ChatTokenizer(Protocol):
    """The part of a transformers tokenizer that dialogues are made with."""

    @property
    def eos_token_id(self) -> Any:
        """The id that ends a message, an int."""
        ...

    @property
    def all_special_ids(self) -> list[int]:
        """Ids of all special tokens."""
        ...

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Render messages with the chat template (``tokenize=False`` gives text)."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> Any:
        """Ids to text."""
        ...
