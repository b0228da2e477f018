"""How a message of the model becomes actions: as tool calls, or as text that a function reads.

Either way the message is read from exactly the sampled ids, and a mistake of the model's becomes a problem: text that
the model is shown in place of an observation, without the environment being touched.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.json_text import deeper_than
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.tool_schema import argument_problem, random_arguments, read_python_words, tools_from_schema
from openenv_trl.types import Tool

MAX_ARGUMENT_DEPTH = 64
"""Levels of lists and objects in a tool call's arguments; what is deeper, Python and JSON libraries choke on."""


@dataclass(frozen=True)
class ToolCall:
    """One action that the model asked for.

    Attributes:
        name: The tool's name; "" for a text action.
        arguments: The arguments as the model gave them.
        action: What goes out as ``step``; None where there is a problem.
        problem: What is wrong with the call, as the model is told; None if nothing is.
        id: What tells the call from others; "" where the model gave none, until the conversation makes one up.
    """

    name: str
    arguments: dict[str, Any]
    action: dict[str, Any] | None
    problem: str | None = None
    id: str = ""


@dataclass(frozen=True)
class ParsedTurn:
    """What a message of the model says.

    Attributes:
        calls: The actions asked for, in order. Empty, and no problem: the model did not act.
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
        """Read one message of the model. Never raises for what a model wrote.

        Raises:
            ConfigurationError: A function of the user's failed.
        """
        ...

    def read(self, message: Message) -> ParsedTurn:
        """Read a message that came as a message, as `parse` reads one of ids.

        Raises:
            ConfigurationError: A function of the user's failed.
        """
        ...

    def sample(self, generator: random.Random) -> Message:
        """A random valid message of the model, for warm starts and baselines."""
        ...


def call_tool_action(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The action that calls one of an environment's tools."""
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


class ToolActions:
    """Actions as tool calls, read by the tokenizer's own response template.

    Args:
        tools: The tools offered.
        as_step: Makes of a tool's name and arguments what goes out as ``step``. By default the call itself,
            ``{"type": "call_tool", "tool_name": ..., "arguments": {...}}``.

    Raises:
        ConfigurationError: There are no tools, or two of one name.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        as_step: Callable[[str, dict[str, Any]], dict[str, Any]] = call_tool_action,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        if not tools:
            raise ConfigurationError("ToolActions needs at least one tool; without tools, use TextActions.")
        if len(self._tools) < len(tools):
            raise ConfigurationError(f"Two tools have one name: {[tool.name for tool in tools]}.")
        self._as_step = as_step

    @classmethod
    def from_schema(cls, action_schema: dict[str, Any]) -> ToolActions:
        """One tool "act" for an environment that offers none: its arguments go out as the action itself."""
        return cls(tools_from_schema(action_schema), as_step=lambda _, arguments: arguments)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the prompt offers."""
        return list(self._tools.values())

    @property
    def answer_role(self) -> Literal["tool", "user"]:
        """Observations come as results of tools."""
        return "tool"

    def parse(self, completion_ids: Sequence[int], template: DialogueTemplate) -> ParsedTurn:
        """Read the tool calls of one message.

        Raises:
            ConfigurationError: ``as_step`` raised, or gave something that is no dict.
        """
        try:
            return self._parse(template.parse_message(completion_ids))
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: parsers give anything for odd text, and it must not end a run
            return _unreadable(template.text(completion_ids), error)

    def read(self, message: Message) -> ParsedTurn:
        """Read the tool calls of a message, whose arguments are objects.

        Raises:
            ConfigurationError: As for `parse`.
        """
        try:
            return self._parse(message)
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: endpoints give anything
            return _unreadable(str(message.get("content") or ""), error)

    def sample(self, generator: random.Random) -> Message:
        """A message with one call of a random tool."""
        tool = generator.choice(list(self._tools.values()))
        call = {"name": tool.name, "arguments": random_arguments(tool, generator)}
        return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]}

    def _parse(self, parsed: Message) -> ParsedTurn:
        message = dict(parsed)
        text = str(message.get("content") or "")
        message["content"] = text
        calls: Any = message.get("tool_calls") or []
        read = tuple(self._read(call) for call in cast("list[Any]", calls if isinstance(calls, list) else [calls]))
        if read:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in read
            ]
        else:
            message.pop("tool_calls", None)
        return ParsedTurn(read, text, message)

    def _read(self, call: Any) -> ToolCall:
        read = self._read_call(call)
        given: Any = _fields(call).get("id") or _fields(_fields(call).get("function")).get("id")
        return replace(read, id=given) if isinstance(given, str) else read

    def _read_call(self, call: Any) -> ToolCall:
        fields = _fields(call)
        fields = _fields(fields["function"]) if "function" in fields else fields
        name = fields.get("name")
        if not isinstance(name, str):
            return ToolCall("", {}, None, 'Error: a tool call must be {"name": ..., "arguments": {...}}.')
        arguments: Any = fields.get("arguments")
        arguments = {} if arguments is None else arguments
        if deeper_than(arguments, MAX_ARGUMENT_DEPTH):
            text = f"Error: the arguments are nested more than {MAX_ARGUMENT_DEPTH} levels deep."
            return ToolCall(name, {}, None, text)
        shown = copy.deepcopy(_fields(arguments))  # what was parsed is kept by the template for equal messages
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools)
            return ToolCall(name, shown, None, f"Error: there is no tool '{name:.80}'. The tools are: {known}.")
        if isinstance(arguments, dict):
            arguments = shown = read_python_words(tool, shown)
        problem = argument_problem(tool, arguments)
        if problem is not None:
            return ToolCall(name, shown, None, f"Error: {problem}.")
        return ToolCall(name, shown, self._step_of(name, shown))

    def _step_of(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            action: Any = self._as_step(name, arguments)
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: the function is the user's
            raise ConfigurationError(
                f"The function given to ToolActions as as_step raised {type(error).__name__} ({error}) for the tool "
                f"'{name}' with {arguments!r:.120}. It must make an action of all arguments that fit the tool's schema."
            ) from error
        if not isinstance(action, dict):
            raise ConfigurationError(
                "The function given to ToolActions as as_step must return a dict, not "
                f"{type(action).__name__} ({action!r:.80})."
            )
        return cast("dict[str, Any]", action)


class TextActions:
    """Actions as plain text, read by a function of yours. Needs no chat template with tools.

    Args:
        parse: Makes an action of the model's text, its thoughts left out; None where the text holds no action. It must
            not raise: a model writes anything.
        format_hint: What the model is told when its text held no action.
        examples: Texts that are valid actions, for random policies.

    Example:
        >>> TextActions(lambda text: {"guess": text.strip()} if text.strip() else None, format_hint="Write a word.")
    """

    def __init__(
        self,
        parse: Callable[[str], dict[str, Any] | None],
        *,
        format_hint: str = "No action could be read from your answer.",
        examples: Sequence[str] = (),
    ) -> None:
        self._parse = parse
        self._format_hint = format_hint
        self._examples = list(examples)

    @property
    def tools(self) -> Sequence[Tool]:
        """None: actions are text."""
        return ()

    @property
    def answer_role(self) -> Literal["tool", "user"]:
        """Observations come as messages of the user."""
        return "user"

    def parse(self, completion_ids: Sequence[int], template: DialogueTemplate) -> ParsedTurn:
        """Read the action of one message.

        Raises:
            ConfigurationError: The function raised, or gave something that is neither a dict nor None.
        """
        thoughts, text = template.split_thoughts(completion_ids)
        turn = self._read(text)
        return replace(turn, message={**turn.message, "reasoning_content": thoughts}) if thoughts else turn

    def read(self, message: Message) -> ParsedTurn:
        """Read the action of a message's text.

        Raises:
            ConfigurationError: As for `parse`.
        """
        return self._read(str(message.get("content") or ""))

    def _read(self, text: str) -> ParsedTurn:
        message: Message = {"role": "assistant", "content": text}
        try:
            action: Any = self._parse(text)
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: the function is the user's
            raise ConfigurationError(
                f"The function given to TextActions raised {type(error).__name__} ({error}) for the text "
                f"{text!r:.120}. A model may write anything: return None for text that holds no action."
            ) from error
        if action is None:
            return ParsedTurn((), text, message, self._format_hint)
        if not isinstance(action, dict):
            raise ConfigurationError(
                "The function given to TextActions must return a dict or None, not "
                f"{type(action).__name__} ({action!r:.80})."
            )
        return ParsedTurn((ToolCall("", {}, cast("dict[str, Any]", action)),), text, message)

    def sample(self, generator: random.Random) -> Message:
        """One of the examples, as a message.

        Raises:
            ConfigurationError: There are none.
        """
        if not self._examples:
            raise ConfigurationError("Random text actions need examples: TextActions(..., examples=[...]).")
        return {"role": "assistant", "content": generator.choice(self._examples)}


def _unreadable(text: str, error: Exception) -> ParsedTurn:
    reason = str(error) or type(error).__name__
    problem = f"Error: your tool call could not be read: {reason}"
    return ParsedTurn((), text, {"role": "assistant", "content": text}, problem)


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
