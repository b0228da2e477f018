"""How an observation becomes the text that a model reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.rollout.json_text import json_text

TEXT_FIELDS = ("message", "text", "prompt")
"""Fields that hold the text where the environment wrote one itself, in order of preference."""

_NOT_OBSERVED = ("metadata", "done", "reward")


def observation_text(observation: Any) -> str:
    """The text that the model reads of an observation.

    It is the observation's ``message`` (or ``text``, or ``prompt``) where that is a non-empty string, the result or
    error of a tool where the observation is one, and else compact JSON of the observation without ``metadata``. Where
    there is nothing to show, it is empty: an observation without fields, or an empty ``message`` with nothing beside
    it but None and empty strings. An empty ``message`` beside other values hides none of them.

    Example:
        >>> observation_text({"message": "Your hand: 10, 6.", "player_sum": 16, "metadata": {}})
        'Your hand: 10, 6.'
        >>> observation_text({"board": [0, 1], "metadata": {}})
        '{"board":[0,1]}'
        >>> observation_text({"message": "", "metadata": {}})
        ''
    """
    if isinstance(observation, str):
        return observation
    if not isinstance(observation, Mapping):
        return json_text(observation)
    fields = cast("Mapping[str, Any]", observation)
    for name in TEXT_FIELDS:
        text = fields.get(name)
        if isinstance(text, str) and text:
            return text
    if "tool_name" in fields and "result" in fields:
        return _tool_result_text(fields["result"], fields.get("error"))
    shown = {name: value for name, value in fields.items() if name not in _NOT_OBSERVED}
    says_nothing = any(isinstance(shown.get(name), str) for name in TEXT_FIELDS)
    if says_nothing and all(value is None or (isinstance(value, str) and not value) for value in shown.values()):
        return ""
    return json_text(shown) if shown else ""


def _tool_result_text(result: Any, error: Any) -> str:
    """What a tool of an MCP server gave: its data, which arrives wrapped in several ways."""
    if error:
        return f"Error: {error['message'] if isinstance(error, Mapping) and 'message' in error else _text(error)}"
    if isinstance(result, Mapping) and "data" in result and "content" in result:
        return _text(cast("Mapping[str, Any]", result)["data"])
    return _text(result)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
