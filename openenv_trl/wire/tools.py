"""Observations that come of tools: the list of them, and the result of one.

Source: sections "tool result" and "MCPEnvironment" of the OpenEnv wire, version 0.10.0; the result has the
shape of a FastMCP ``CallToolResult``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from openenv_trl.types import Observation, Tool
from openenv_trl.wire.codec import encode


class ToolError(BaseModel):
    """Why a tool call failed."""

    model_config = ConfigDict(extra="forbid")

    error_type: str
    message: str


class ListToolsObservation(Observation):
    """The tools that an environment offers."""

    tools: list[Tool]


class CallToolObservation(Observation):
    """What one tool call brought."""

    tool_name: str
    result: Any = None
    error: ToolError | None = None


def tool_result(value: Any) -> dict[str, Any]:
    """Return a tool's value in the shape of a ``CallToolResult``.

    Raises:
        TypeError: The value holds something that JSON cannot express.
    """
    wrapped = not isinstance(value, Mapping)
    structured = {"result": value} if wrapped else dict(cast("Mapping[str, Any]", value))
    text = value if isinstance(value, str) else encode(value).decode()
    return {
        "content": [{"type": "text", "text": text, "annotations": None, "meta": None}],
        "structured_content": structured,
        "meta": {"fastmcp": {"wrap_result": True}} if wrapped else None,
        "data": value,
        "is_error": False,
    }


def observation_of_tool(name: str, value: Any) -> Observation:
    """Return a tool's own observation, or its value as a `CallToolObservation`."""
    if isinstance(value, Observation):
        return value
    return CallToolObservation(tool_name=name, result=tool_result(value))


def mcp_result(value: Any) -> dict[str, Any]:
    """Return what ``tools/call`` answers: an observation without reward and done, or the value itself."""
    if isinstance(value, Observation):
        return tool_result(value.model_dump(exclude={"reward", "done", "metadata"}))
    return tool_result(value)


def mcp_tool(tool: Tool) -> dict[str, Any]:
    """Return one entry of ``tools/list``."""
    return {
        "name": tool.name,
        "title": None,
        "description": tool.description or None,
        "inputSchema": tool.input_schema,
        "outputSchema": None,
        "icons": None,
        "annotations": None,
        "meta": None,
        "execution": None,
    }


def tool_of_mcp(entry: dict[str, Any]) -> Tool:
    """Return a tool from an entry of ``tools/list``, of whichever server.

    Raises:
        ValueError: The entry has no name.
    """
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a tool without a name: {entry}")
    schema: dict[str, Any] = entry.get("inputSchema") or entry.get("input_schema") or {}
    return Tool(
        name=name,
        description=entry.get("description") or "",
        input_schema=schema or {"type": "object", "properties": {}},
    )
