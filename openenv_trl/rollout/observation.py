"""How an observation becomes the text that a model reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

TEXT_FIELDS = ("message", "text", "prompt")
"""Fields that hold the text where the environment wrote one itself, in order of preference."""

_NOT_OBSERVED = ("metadata", "done", "reward")


def observation_text(observation: Any) -> str:
    """The text that the model reads of an observation.

    It is the observation's ``message`` (or ``text``, or ``prompt``) where that is a non-empty string, the result or
    error of a tool where the observation is one, and else compact JSON of the observation without ``metadata``.

    Example:
        >>> observation_text({"message": "Your hand: 10, 6.", "player_sum": 16, "metadata": {}})
        'Your hand: 10, 6.'
        >>> observation_text({"board": [0, 1], "metadata": {}})
        '{"board":[0,1]}'
    """
    if isinstance(observation, str):
        return observation
    if not isinstance(observation, Mapping):
        return _json(observation)
    fields = cast("Mapping[str, Any]", observation)
    for name in TEXT_FIELDS:
        text = fields.get(name)
        if isinstance(text, str) and text:
            return text
    if "tool_name" in fields and "result" in fields:
        return _tool_result_text(fields["result"], fields.get("error"))
    return _json({name: value for name, value in fields.items() if name not in _NOT_OBSERVED})


def _tool_result_text(result: Any, error: Any) -> str:
    """What a tool of an MCP server gave: its data, which arrives wrapped in several ways."""
    if error:
        return f"Error: {error['message'] if isinstance(error, Mapping) and 'message' in error else _text(error)}"
    if isinstance(result, Mapping) and "data" in result and "content" in result:
        return _text(cast("Mapping[str, Any]", result)["data"])
    return _text(result)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
