"""Reads messages of the model with the tokenizer's response template, once that is known to fit the chat template."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.task import Message
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.rollout.tool_schema import random_arguments
from openenv_trl.types import Tool

Parser = Callable[[Sequence[int]], Any]

_CALLS_TRIED = 4  # some templates write a value, such as Gemma's null, that their own parser does not take


def find_parser(
    tokenizer: ChatTokenizer, *, header: str, definitions: list[Any] | None, is_needed: bool, way_out: str
) -> Parser | None:
    """The tokenizer's own parser.

    Args:
        tokenizer: Who parses.
        header: The text with which the chat template begins the model's message.
        definitions: The tools, as templates take them: newer parsers type arguments by their schemas.
        is_needed: Whether an error is raised where there is none.
        way_out: The end of an error's sentence.

    Raises:
        ConfigurationError: The tokenizer cannot parse; the text says what to set.
    """
    parse: Any = getattr(tokenizer, "parse_response", None)
    has_template = getattr(tokenizer, "response_template", None) or getattr(tokenizer, "response_schema", None)
    if parse is None or not has_template:
        if not is_needed:
            return None
        raise ConfigurationError(
            "The tokenizer has no response template, so tool calls cannot be read. Set "
            "tokenizer.response_template = {...} (trl.chat_template_utils.add_response_schema(tokenizer) sets it "
            f"for many models){way_out}."
        )
    # Newer versions of transformers take the prompt's end, then also the tools.
    known = inspect.signature(parse).parameters
    given: dict[str, Any] = {"prefix": header, "tools": definitions}
    arguments = {key: value for key, value in given.items() if key in known}
    return lambda ids: parse(list(ids), **arguments)


def check_parser(
    parse: Parser,
    tool: Tool,
    message_ids: Callable[[Message], list[int]],
    decode: Callable[[list[int]], Any],
    way_out: str,
) -> None:
    """Read back one call that the chat template wrote: a response template of another model reads none.

    Raises:
        ConfigurationError: None of a few calls is read back.
    """
    told: tuple[list[int], Any, Exception | None] | None = None
    for seed in range(_CALLS_TRIED):
        try:
            arguments = random_arguments(tool, random.Random(seed))
            function = {"name": tool.name, "arguments": arguments}
            calls = [{"type": "function", "function": function}]
            ids = message_ids({"role": "assistant", "content": "", "tool_calls": calls})
        except Exception:  # boundary: schemas are anyone's, and some templates begin messages otherwise
            return  # so no call can be made up to try the parser with
        cause: Exception | None = None
        try:
            found: Any = parse(ids)
        except Exception as error:  # boundary: what a tokenizer's parser raises for odd text is known to nobody
            found, cause = f"{type(error).__name__}: {error}", error
        if _holds_call(found, tool.name, arguments):
            return
        told = told or (ids, found, cause)
    assert told is not None
    raise ConfigurationError(
        "The tokenizer's response template does not read the tool calls that the chat template writes: of "
        f"{decode(told[0])!r:.200} it made {told[1]!r:.200}. Set tokenizer.response_template to the one of this chat "
        "template (trl.chat_template_utils.add_response_schema(tokenizer) sets it for many models)"
        f"{way_out}."
    ) from told[2]


def _holds_call(message: Any, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a parsed message is one call of this tool, with arguments of these names."""
    calls: Any = cast("Message", message).get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list) or len(cast("list[Any]", calls)) != 1:
        return False
    call = cast("list[Any]", calls)[0]
    function: Any = cast("Message", call).get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    given: Any = cast("Message", function).get("arguments") or {}
    return (
        cast("Message", function).get("name") == name and isinstance(given, dict) and given.keys() == arguments.keys()
    )
