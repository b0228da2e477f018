"""What an agent sees over the Model Context Protocol: tools, results and mistakes, in the protocol's own words.

An agent never sees a reward or an observation's ``metadata``: those are the trainer's, and may hold the answer. That an
episode is over is told in words, and as ``done`` in the structured result.

Source: Model Context Protocol, revision 2025-06-18, "Tools" (names in camelCase, ``structuredContent``, ``isError``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from openenv_trl.types import Observation, Tool
from openenv_trl.wire.codec import decode, encode

EPISODE_OVER = "The episode is over."

_NOT_THE_AGENTS = {"reward", "done", "metadata"}


def agent_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the entries of ``tools/list``."""
    entries: list[dict[str, Any]] = []
    for tool in tools:
        entry: dict[str, Any] = {"name": tool.name, "inputSchema": {"type": "object", **tool.input_schema}}
        if tool.description:
            entry["description"] = tool.description
        entries.append(entry)
    return entries


def agent_result(value: Any) -> dict[str, Any]:
    """Return the result of a tool call that went well.

    Raises:
        TypeError: The value holds something that JSON cannot express.
    """
    done = isinstance(value, Observation) and value.done
    shown = agent_view(value) if isinstance(value, Observation) else value
    if isinstance(shown, Mapping):
        structured = dict(cast("Mapping[str, Any]", shown))
        if done:
            structured["done"] = True
        encoded = encode(structured)
    else:
        structured = {"result": shown}
        encoded = encode(shown)
    text = shown if isinstance(shown, str) else encoded.decode()
    content = [{"type": "text", "text": text}]
    if done:
        content.append({"type": "text", "text": EPISODE_OVER})
    # Through JSON, so that only what JSON can say is left: arrays are lists, dates are text.
    return {"content": content, "structuredContent": decode(encode(structured)), "isError": False}


def agent_mistake(text: str) -> dict[str, Any]:
    """Return the result of a tool call that failed, in words that the model can act on."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def agent_view(observation: Observation) -> dict[str, Any]:
    """Return what of an observation is the agent's to see."""
    return observation.model_dump(exclude=_NOT_THE_AGENTS)


def instructions(description: str, first: Observation | None) -> str:
    """Return what a client tells its model before the first call: what this is, and how the episode begins.

    Args:
        description: The environment's own.
        first: What the reset showed; None where the trainer resets.
    """
    if first is None:
        return description
    try:
        shown = encode(agent_view(first)).decode()
    except TypeError:
        shown = "{}"
    return description if shown == "{}" else f"{description}\n\nThe episode has begun. It shows: {shown}"
