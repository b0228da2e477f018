"""What an agent sees over the Model Context Protocol: tools, results and mistakes, in the protocol's own words.

An agent never sees a reward or an observation's ``metadata``: those are the trainer's, and may hold the answer. That an
episode is over is told in words, and as ``done`` in the structured result.

Source: Model Context Protocol, revision 2025-06-18, "Tools" (names in camelCase, ``structuredContent``, ``isError``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from openenv_trl.types import Observation
from openenv_trl.wire.codec import decode, encode
from openenv_trl.wire.tools import CallToolResult

EPISODE_OVER = "The episode is over."
NO_OTHER = f"{EPISODE_OVER} Only the trainer can begin another: no tool can."

_NOT_THE_AGENTS = {"reward", "done", "metadata"}


def agent_tools(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of ``tools/list``.

    Args:
        entries: Those of the public package's dialect, from `mcp_tool` or an `MCPEnvironment`. Their output schemas
            are left out: an agent is not shown all that they promise.
    """
    return [
        {
            "name": entry["name"],
            "inputSchema": {"type": "object", **(entry.get("inputSchema") or {})},
            **{name: entry[name] for name in ("title", "description", "annotations") if entry.get(name)},
        }
        for entry in entries
    ]


def agent_result(value: Any) -> dict[str, Any]:
    """Return the result of a tool call that went well.

    Raises:
        TypeError: The value holds something that JSON cannot express.
    """
    if isinstance(value, CallToolResult):
        return _of_dialect(value)
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


def _of_dialect(result: CallToolResult) -> dict[str, Any]:
    """Return a result in the public package's shape, which names and leaves out otherwise."""
    plain: dict[str, Any] = decode(encode(result))
    blocks: list[dict[str, Any]] = plain.get("content") or []
    shown: dict[str, Any] = {
        "content": [
            {name: part for name, part in block.items() if part is not None and name != "meta"} for block in blocks
        ],
        "isError": bool(plain.get("is_error")),
    }
    if plain.get("structured_content") is not None:
        shown["structuredContent"] = plain["structured_content"]
    return shown


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
