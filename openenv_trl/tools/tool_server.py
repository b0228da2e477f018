"""The tools of an MCP server object in this process: FastMCP 2 and later, or the official SDK's server.

Nothing of either package is imported here: a server is known by what it can do. A tool that is a plain Python function
is called as one; every other (one that wants a context, one that is proxied or transformed, one behind a middleware) is
called through its server.

Source: FastMCP 2.14, 3.4 and 4.2 and the MCP SDK 1.30 and 2.3, for how their tools are found.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from openenv_trl.tools.callable_tool import CallableTool, check_of
from openenv_trl.types import Tool
from openenv_trl.wire.tools import CallToolResult, listed_tool

_BESIDE_CALLS = frozenset({"DereferenceRefsMiddleware", "OpenTelemetryMiddleware", "RequestStateBoundary"})
"""Middleware that every server has from its package, and that changes nothing in what a call does."""


class ServerTool:
    """A tool that only its server can call.

    Attributes:
        tool: Its name, description and the schema of its arguments.
        on_loop: Always.
        timeout_s: None: its server knows.
    """

    on_loop = True
    timeout_s: float | None = None

    def __init__(self, server: Any, tool: Tool, about: dict[str, Any], function: Callable[..., Any] | None) -> None:
        self.tool = tool
        self._server = server
        self._about = about
        self._check = None if function is None else check_of(function, tool.input_schema.get("properties", {}))

    def check(self, arguments: dict[str, Any]) -> None:
        """Look whether the arguments fit, where that can be seen from here.

        Raises:
            ValidationError: They do not.
        """
        if self._check is not None:
            self._check(arguments)

    async def call(self, arguments: dict[str, Any]) -> CallToolResult:
        """Call the tool through its server.

        Raises:
            Exception: Whatever the server raises.
        """
        if type(self._server).__module__.startswith("fastmcp"):
            from fastmcp import Client  # pyright: ignore  # installed, since the server is one of its own

            client: Any = Client(self._server)
            async with client:
                return result_of(await client.call_tool(self.tool.name, arguments))
        result = result_of(await self._server.call_tool(self.tool.name, arguments))
        schema: dict[str, Any] = self._about.get("output_schema") or {}
        if schema.get("x-fastmcp-wrap-result") and result["structured_content"] is not None:
            result["data"] = result["structured_content"].get("result")
        return result

    def listed(self) -> dict[str, Any]:
        """Return the tool's entry in ``tools/list``."""
        return listed_tool(self.tool, **self._about)


class FunctionTool(CallableTool):
    """A function that was registered with an MCP server."""

    def result(self, value: Any) -> CallToolResult:
        """Return what the function returned in the shape of a tool result; blocks of content stay as they are."""
        if isinstance(value, str | int | float | dict | None):
            return super().result(value)
        if hasattr(value, "structured_content") and hasattr(value, "content"):
            return result_of(value)
        items = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
        blocks = [_block(each) for each in items]
        if blocks and all(block is not None for block in blocks):
            return CallToolResult(content=blocks, structured_content=None, meta=None, data=None, is_error=False)
        return super().result(value)


OfferedTool = CallableTool | ServerTool


def tools_of(server: Any) -> dict[str, OfferedTool]:
    """Return the tools of a server, by name. May take milliseconds where the server must be asked on an event loop."""
    is_direct = not _middleware(server)
    found: dict[str, OfferedTool] = {}
    for each in _registered(server):
        tool = _described(each)
        if is_direct and _is_plain(each, tool):
            found[tool.name] = _function_tool(each, tool)
        else:
            found[tool.name] = ServerTool(server, tool, _about(each), getattr(each, "fn", None))
    return found


def registry_of(server: Any) -> Mapping[Any, Any] | None:
    """Return where a server keeps its tools, to see when some are added or replaced; None where that is not known."""
    provider: Any = getattr(server, "_local_provider", None)
    for held in (getattr(provider, "_components", None), getattr(_manager(server), "_tools", None)):
        if isinstance(held, Mapping):
            return cast("Mapping[Any, Any]", held)
    return None


def result_of(answer: Any) -> CallToolResult:
    """Return what a server's ``call_tool`` gave, of whichever version, in the shape that travels."""
    if isinstance(answer, tuple):  # the SDK's server of version 1: content, structured content
        content, structured = cast("tuple[list[Any], Any]", answer)
        return CallToolResult(
            content=_dumped(content), structured_content=structured, meta=None, data=structured, is_error=False
        )
    structured: Any = getattr(answer, "structured_content", None)
    found: dict[str, Any] = dict(_dumped(getattr(answer, "meta", None)) or {})
    # What the protocol says of itself is not the tool's.
    meta = {key: value for key, value in found.items() if not key.startswith("io.modelcontextprotocol/")} or None
    data = getattr(answer, "data", structured)
    return CallToolResult(
        content=_dumped(getattr(answer, "content", answer)),
        structured_content=structured,
        meta=meta,
        data=data if _is_json(data) else structured,
        is_error=bool(answer.is_error if hasattr(answer, "is_error") else getattr(answer, "isError", False)),
    )


def on_an_event_loop(call: Callable[[], Any]) -> Any:
    """Call a coroutine function from code that may itself be running on an event loop, and wait: in a thread's own."""
    import anyio

    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(anyio.run(call))
        except BaseException as error:  # handed on to the waiting thread
            failure.append(error)

    thread = threading.Thread(target=run, name="tool server")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _registered(server: Any) -> list[Any]:
    provider: Any = getattr(server, "_local_provider", None)
    if provider is not None and list(cast("Iterable[Any]", getattr(server, "providers", None) or ())) == [provider]:
        held = getattr(provider, "_components", None)
        is_plain = not getattr(server, "_transforms", None) and not getattr(provider, "_transforms", None)
        if isinstance(held, Mapping) and is_plain:
            parts = cast("Mapping[str, Any]", held)
            return [each for key, each in parts.items() if key.startswith("tool:")]
    listed = getattr(_manager(server), "list_tools", None)
    if listed is not None and not inspect.iscoroutinefunction(listed):
        return list(listed())
    ask = getattr(server, "get_tools", None) or server.list_tools
    answer = on_an_event_loop(ask)
    return list(cast("Mapping[str, Any]", answer).values()) if isinstance(answer, Mapping) else list(answer)


def _manager(server: Any) -> Any:
    return getattr(server, "_tool_manager", None)


def _middleware(server: Any) -> list[Any]:
    installed: Any = getattr(server, "middleware", None)
    return [each for each in cast("list[Any]", installed or []) if type(each).__name__ not in _BESIDE_CALLS]


def _described(each: Any) -> Tool:
    schema = (
        getattr(each, "parameters", None) or getattr(each, "inputSchema", None) or getattr(each, "input_schema", None)
    )
    return Tool(name=each.name, description=each.description or "", input_schema=inlined(schema or {}))


def _is_plain(each: Any, tool: Tool) -> bool:
    function = getattr(each, "fn", None)
    if function is None or type(each).__name__ not in ("FunctionTool", "Tool"):
        return False
    if getattr(each, "serializer", None) is not None or getattr(each, "auth", None) is not None:
        return False
    try:
        wanted = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError):
        return False
    # A parameter that is not in the schema is one that the server fills in: a context, a dependency.
    return wanted.keys() == tool.input_schema.get("properties", {}).keys()


def _function_tool(each: Any, tool: Tool) -> FunctionTool:
    about = _about(each)
    output_schema = about.pop("output_schema")
    return FunctionTool(
        each.fn,
        tool,
        output_schema=output_schema,
        about=about,
        timeout_s=getattr(each, "timeout", None),
        in_thread=getattr(each, "run_in_thread", True),
    )


def _about(each: Any) -> dict[str, Any]:
    tags = getattr(each, "tags", None)
    meta = dict(getattr(each, "meta", None) or {})
    if tags is not None:
        meta["fastmcp"] = {"tags": sorted(tags)}
    output_schema = getattr(each, "output_schema", None) or getattr(each, "outputSchema", None)
    checked_by: Any = getattr(each, "fn_metadata", None)  # the SDK's
    if checked_by is not None and checked_by.output_schema:
        output_schema = {**checked_by.output_schema}
        if checked_by.wrap_output:
            output_schema["x-fastmcp-wrap-result"] = True
    return {
        "title": getattr(each, "title", None),
        "output_schema": inlined(output_schema) if output_schema else None,
        "icons": _dumped(getattr(each, "icons", None), by_alias=True),
        "annotations": _dumped(getattr(each, "annotations", None), by_alias=True),
        "meta": meta or None,
    }


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its local definitions written out where they are used, except those that hold themselves."""
    definitions: dict[str, Any] = schema.get("$defs") or {}
    if not definitions:
        return schema
    is_recursive = False

    def write_out(part: Any, within: tuple[str, ...]) -> Any:
        nonlocal is_recursive
        if isinstance(part, list):
            return [write_out(each, within) for each in cast("list[Any]", part)]
        if not isinstance(part, dict):
            return part
        fields = cast("dict[str, Any]", part)
        name = str(fields.get("$ref", "")).removeprefix("#/$defs/")
        if name in within:
            is_recursive = True
            return fields
        if name in definitions:
            rest = {key: value for key, value in fields.items() if key != "$ref"}
            return write_out({**definitions[name], **rest}, (*within, name))
        return {key: write_out(value, within) for key, value in fields.items() if key != "$defs"}

    written_out = write_out(schema, ())
    return schema if is_recursive else written_out


def _block(value: Any) -> dict[str, Any] | None:
    for method in ("to_image_content", "to_audio_content", "to_resource_content"):
        convert = getattr(value, method, None)
        if convert is not None:
            return _dumped(convert())
    is_block = type(value).__module__.startswith("mcp") and hasattr(value, "type")
    return _dumped(value) if is_block else None


def _dumped(value: Any, *, by_alias: bool = False) -> Any:
    # By alias: the protocol's names, which are the fields' own in version 1 of the SDK.
    if isinstance(value, list):
        return [_dumped(each, by_alias=by_alias) for each in cast("list[Any]", value)]
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=by_alias) if dump is not None else value


def _is_json(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | dict | list | None)
