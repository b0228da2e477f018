"""How a message of the model becomes actions: as tool calls, or as text that a function reads.

Either way the message is read from exactly the sampled ids, and a mistake of the model's becomes a problem:
text that the model is shown in place of an observation, without the environment being touched.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.task import Message
from openenv_trl.types import Tool


@dataclass(frozen=True)
class ToolCall:
    """One action that the model asked for.

    Attributes:
        name: The tool's name; "" for a text action.
        arguments: The arguments as the model gave them.
        action: What goes out as ``step``; None where there is a problem.
        problem: What is wrong with the call, as the model is told; None if nothing is.
    """

    name: str
    arguments: dict[str, Any]
    action: dict[str, Any] | None
    problem: str | None = None


@dataclass(frozen=True)
class ParsedTurn:
    """What a message of the model says.

    Attributes:
        calls: The actions asked for, in order. Empty: the model did not act.
        text: The message without its tool calls, for people.
        message: The message as chat templates take it, for logs.
        problem: Why the message as a whole could not be read, as the model is told; None if it could.
    """

    calls: tuple[ToolCall, ...]
    text: str
    message: Message = field(default_factory=dict[str, Any])
    problem: str | None = None


class ActionInterface(Protocol):
    """Reads actions out of sampled ids, and says how the environment answers in the dialogue."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the prompt offers; empty where actions are text."""
        ...

    @property
    def answer_role(self) -> Literal["tool", "user"]:
        """The role of the messages that bring observations."""
        ...

    def parse(self, completion_ids: Sequence[int], template: DialogueTemplate) -> ParsedTurn:
        """Read one message of the model. Never raises for what a model wrote."""
        ...

    def sample(self, generator: random.Random) -> Message:
        """A random valid message of the model, for warm starts and baselines."""
        ...


class ToolActions:
    """Actions as tool calls, read by the tokenizer's own response template.

    Args:
        tools: The tools offered.
        as_step: Makes of a tool's name and arguments what goes out as ``step``. None: the call itself,
            ``{"type": "call_tool", "tool_name": ..., "arguments": {...}}``.
    """

    answer_role: Literal["tool", "user"] = "tool"

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        as_step: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        raise NotImplementedError

    @classmethod
    def from_schema(cls, action_schema: dict[str, Any]) -> ToolActions:
        """One tool "act" for an environment that offers none: its arguments go out as the action itself."""
        raise NotImplementedError

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the prompt offers."""
        raise NotImplementedError

    def parse(self, completion_ids: Sequence[int], template: DialogueTemplate) -> ParsedTurn:
        """Read the tool calls of one message."""
        raise NotImplementedError

    def sample(self, generator: random.Random) -> Message:
        """A message with one call of a random tool."""
        raise NotImplementedError


class TextActions:
    """Actions as plain text, read by a function of yours. Needs no chat template with tools.

    Args:
        parse: Makes an action of the model's text; None where the text holds no action.
        format_hint: What the model is told when its text held no action.
        examples: Texts that are valid actions, for random policies.

    Example:
        >>> TextActions(lambda text: {"guess": text.strip()} if text.strip() else None, format_hint="Write one
        word.")
    """

    answer_role: Literal["tool", "user"] = "user"
    tools: Sequence[Tool] = ()

    def __init__(
        self,
        parse: Callable[[str], dict[str, Any] | None],
        *,
        format_hint: str = "No action could be read from your answer.",
        examples: Sequence[str] = (),
    ) -> None:
        raise NotImplementedError

    def parse(self, completion_ids: Sequence[int], template: DialogueTemplate) -> ParsedTurn:
        """Read the action of one message."""
        raise NotImplementedError

    def sample(self, generator: random.Random) -> Message:
        """One of the examples, as a message."""
        raise NotImplementedError
