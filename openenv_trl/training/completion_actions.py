"""The actions in a completion that was generated without an environment. Pure.

A completion is a list of messages, whose tool calls are the actions; or text, which a function of the user's reads.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.errors import ConfigurationError

ParseActions = Callable[[str], "dict[str, Any] | Sequence[dict[str, Any]] | None"]
"""Makes an action, or several in their order, of a completion's text; None where it holds none."""


@dataclass(frozen=True)
class CalledTool:
    """A tool call: the tool's name and the arguments, as the model gave them."""

    name: str
    arguments: Any


@dataclass(frozen=True)
class TextAction:
    """An action that was read from text: what goes out as ``step``."""

    action: dict[str, Any]


def actions_in(completion: Any, parse: ParseActions | None) -> list[CalledTool | TextAction]:
    """The actions of one completion, in order; none where it holds none.

    Args:
        completion: A string, or messages as TRL gives them.
        parse: Reads text. Without it, tool calls are what counts.

    Raises:
        ConfigurationError: The completion is text and there is nothing to read it; or ``parse`` failed.
    """
    if isinstance(completion, str):
        if parse is None:
            raise ConfigurationError(
                "The completions are text, and nothing says how to read actions in it. Give "
                "environment_reward_func(..., parse=function), or use conversations as prompts and a tokenizer whose "
                "response_template reads tool calls."
            )
        return _read(completion, parse)
    found: list[CalledTool | TextAction] = []
    for each in cast("Sequence[Any]", completion):
        message: Mapping[str, Any] = cast("Mapping[str, Any]", each) if isinstance(each, Mapping) else {}
        if message.get("role") != "assistant":
            continue
        calls: Any = message.get("tool_calls") or []
        found += [_called(call) for call in (cast("list[Any]", calls) if isinstance(calls, list) else [calls])]
        if not calls and parse is not None:
            found += _read(str(message.get("content") or ""), parse)
    return found


def _called(call: Any) -> CalledTool:
    fields = cast("Mapping[str, Any]", call) if isinstance(call, Mapping) else dict[str, Any]()
    function: Any = fields.get("function", fields)
    if not isinstance(function, Mapping):
        return CalledTool("", None)
    function = cast("Mapping[str, Any]", function)
    arguments: Any = function.get("arguments") or {}
    if isinstance(arguments, str):  # as OpenAI's interface writes them; what is no JSON stays, and is no valid action
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return CalledTool(str(function.get("name") or ""), arguments)


def _read(text: str, parse: ParseActions) -> list[CalledTool | TextAction]:
    try:
        read: Any = parse(text)
    except Exception as error:  # boundary: the function is the user's
        raise ConfigurationError(
            f"The function given as parse raised {type(error).__name__} ({error}) for the text {text!r:.120}. A model "
            "may write anything: return None for text that holds no action."
        ) from error
    if read is None:
        return []
    actions: list[Any] = [read] if isinstance(read, Mapping) else list(read)
    if not all(isinstance(action, Mapping) for action in actions):
        raise ConfigurationError(
            f"The function given as parse must return a dict, a list of dicts, or None, not {read!r:.80}."
        )
    return [TextAction(dict(action)) for action in actions]
