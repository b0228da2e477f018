"""A chat template, checked once and cut into pieces, so that a dialogue is never rendered again.

What follows a message of the model (its end, the environment's answer, the header of the next message) is
found by rendering a short stand-in conversation and taking what comes after the stand-in's message. Nothing
of a real dialogue is rendered twice, and no sampled id is ever decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from openenv_trl.rollout.task import Message
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.types import Tool


class DialogueTemplate:
    """A tokenizer's chat template, for one set of tools.

    Args:
        tokenizer: A tokenizer with a chat template.
        tools: The tools that the prompt offers; empty for text actions.
        answer_role: The role of the messages that bring observations.
        chat_template: A template to use in place of the tokenizer's own.
        chat_template_kwargs: More arguments for the template, such as ``{"enable_thinking": False}``.

    Raises:
        ConfigurationError: The template cannot carry such a dialogue: it drops tools or their results, has no
            response template to read tool calls with, or the tokenizer has no end token. The text says what
            to set.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        tools: Sequence[Tool] = (),
        *,
        answer_role: Literal["tool", "user"] = "tool",
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        raise NotImplementedError

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the rendered messages and tools, up to where the model begins to write."""
        raise NotImplementedError

    def answer_ids(self, answers: Sequence[tuple[str, str]], completion_ids: Sequence[int]) -> list[int]:
        """Ids that follow the model's message: its end if it is not written yet, the answers, the next header.

        Args:
            answers: Pairs of the tool's name and the text, in the order of the calls (the name is not used
                for text actions).
            completion_ids: The model's message, whose last ids tell how much of the end is still to be
                written.
        """
        raise NotImplementedError

    def message_ids(self, message: Message) -> list[int]:
        """Ids that a model would have to sample to write this message, its end token included."""
        raise NotImplementedError

    def parse_message(self, completion_ids: Sequence[int]) -> Message:
        """Read the model's message with the tokenizer's response template.

        Raises:
            ValueError: It cannot be read: a tool call is broken.
        """
        raise NotImplementedError

    def text(self, ids: Sequence[int]) -> str:
        """Ids as text for people and for text actions, without special tokens."""
        raise NotImplementedError

    def shorten(self, text: str, max_tokens: int) -> tuple[str, int]:
        """The text cut to so many tokens, a note of the cut included, and the number of tokens dropped."""
        raise NotImplementedError
