"""Observations that come of tools: the list of them, and the result of one.

Source: sections "tool result" and "MCPEnvironment" of the OpenEnv wire, version 0.10.0; the result has the
shape of a FastMCP ``CallToolResult``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from openenv_trl.types import Observation, Tool
from openenv_trl.wire.codec import encode


class ToolErrorType(str, Enum):
    """Whose fault a failed tool call was."""

    EXECUTION_ERROR = "execution_error"
    """The tool's: it raised."""
    INVALID_ARGS = "invalid_args"
    """The caller's: the arguments do not fit the tool's schema."""
    TRANSPORT_ERROR = "transport_error"
    """Nobody's here: the server that the tool lives on could not be reached."""
    TOOL_NOT_FOUND = "tool_not_found"
    """The caller's: there is no such tool."""
    TIMEOUT = "timeout"
    """The call took longer than its deadline."""


class ToolError(BaseModel):
    """Why a tool call failed."""

    model_config = ConfigDict(extra="forbid")

    error_type: ToolErrorType | str = Field(union_mode="left_to_right")
    message: str


class ListToolsObservation(Observation):
    """The tools that an environment offers."""

    tools: list[Tool]


class CallToolObservation(Observation):
    """What one tool call brought."""

    tool_name: str
    result: Any = None
    error: ToolError | None = None


class CallToolResult(dict[str, Any]):
    """What one tool call brought, in the shape that travels."""


def tool_result(value: Any) -> CallToolResult:
    """Return a tool's value in the shape of a ``CallToolResult``.

    Raises:
        TypeError: The value holds something that JSON cannot express.
    """
    wrapped = not isinstance(value, Mapping)
    structured = {"result": value} if wrapped else dict(cast("Mapping[str, Any]", value))
    return _shaped([_text(value)], structured, value, wrapped=wrapped)


def function_result(value: Any, output_schema: Mapping[str, Any] | None) -> CallToolResult:
    """Return what a function returned, in the shape that FastMCP gives it.

    A value is structured where the function's annotation says of which type it is, or where it is an object of named
    fields; any other is text.

    Raises:
        TypeError: The value holds something that JSON cannot express.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    nothing = value is None or (type(value) is list and not value)
    content = [] if nothing else [_text(value)]
    if output_schema is not None and output_schema.get("x-fastmcp-wrap-result"):
        return _shaped(content, {"result": value}, value, wrapped=True)
    structured = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    return _shaped(content, structured, structured, wrapped=False)


def _text(value: Any) -> dict[str, Any]:
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
    else:
        text = value if isinstance(value, str) else encode(value).decode()
    return {"type": "text", "text": text, "annotations": None, "meta": None}


def _shaped(
    content: list[dict[str, Any]], structured: dict[str, Any] | None, data: Any, *, wrapped: bool
) -> CallToolResult:
    return CallToolResult(
        content=content,
        structured_content=structured,
        meta={"fastmcp": {"wrap_result": True}} if wrapped else None,
        data=data,
        is_error=False,
    )


def observation_of_tool(name: str, value: Any) -> Observation:
    """Return a tool's own observation, or its value as a `CallToolObservation`."""
    if isinstance(value, Observation):
        return value
    return CallToolObservation(tool_name=name, result=mcp_result(value))


def mcp_result(value: Any) -> CallToolResult:
    """Return what ``tools/call`` answers: an observation without reward and done, or the value itself."""
    if isinstance(value, CallToolResult):
        return value
    if isinstance(value, Observation):
        return tool_result(value.model_dump(exclude={"reward", "done", "metadata"}))
    return tool_result(value)


def listed_tool(
    tool: Tool,
    *,
    title: str | None = None,
    output_schema: dict[str, Any] | None = None,
    icons: Any = None,
    annotations: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    execution: Any = None,
) -> dict[str, Any]:
    """Return one entry of ``tools/list``.

    A tool without a description has an empty one: the public package's client drops the whole list for a null.
    """
    return {
        "name": tool.name,
        "title": title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": output_schema,
        "icons": icons,
        "annotations": annotations,
        "meta": meta,
        "execution": execution,
    }


def mcp_tool(tool: Tool) -> dict[str, Any]:
    """Return one entry of ``tools/list``, of a tool of which no more is known."""
    return listed_tool(tool)


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
