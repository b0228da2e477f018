"""The official ``mcp`` package, and nothing else that knows it: both of its generations, 1.x and 2.x.

A server and a transport are made for each session, so that a session's handlers know their environment. Importing this
module imports the package, which takes a good part of a second: do it when the first agent comes.
"""

# The generation that is not installed cannot be type-checked.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import anyio
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.streamable_http import StreamableHTTPServerTransport

try:
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    _is_second_generation = True
except ImportError:
    from mcp import McpError as MCPError
    from mcp import types

    _is_second_generation = False

# Its "info" tells of every request, and of session ids, which are nobody's business.
_its_logger = logging.getLogger("mcp.server")
if _its_logger.level == logging.NOTSET:
    _its_logger.setLevel(logging.WARNING)


def _is_no_end_of_stream(record: logging.LogRecord) -> bool:
    """Generation 1 calls it an error that a stream of events ends with its session."""
    return not (record.exc_info and isinstance(record.exc_info[1], anyio.ClosedResourceError))


logging.getLogger("mcp.server.streamable_http").addFilter(_is_no_end_of_stream)

Message = MutableMapping[str, Any]
Report = Callable[[float, "float | None", "str | None"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes one tool call.

    Attributes:
        report: Sends a progress notification; None where the client did not ask for any.
        tools_changed: Tells the client to list the tools again.
    """

    report: Report | None
    tools_changed: Callable[[], Awaitable[None]]


class Offer(Protocol):
    """What an agent is offered: dicts in the protocol's own shape."""

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the entries of ``tools/list``."""
        ...

    async def call_tool(self, name: str, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the result of ``tools/call``; a `ProtocolFailure` where there is none."""
        ...


class ProtocolFailure(Exception):
    """A JSON-RPC error in place of a result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class AgentConnection:
    """The library's two halves for one session: what answers HTTP requests, and what handles the messages in them.

    Args:
        session_id: The protocol's session id.
        offer: What the agent is offered.
        name: The server's name, for the client.
        version: The server's version, for the client.
        instructions: What the client tells its model.
        as_json: Whether answers are plain JSON, for a client that takes no event stream.
    """

    def __init__(
        self, session_id: str, offer: Offer, *, name: str, version: str, instructions: str, as_json: bool
    ) -> None:
        self._server = _server(offer, name, version, instructions)
        self._transport = StreamableHTTPServerTransport(mcp_session_id=session_id, is_json_response_enabled=as_json)

    async def run(self, connected: anyio.Event) -> None:
        """Handle messages until the session ends.

        Args:
            connected: Set once requests can be answered.
        """
        options = self._server.create_initialization_options(NotificationOptions(tools_changed=True))
        async with self._transport.connect() as (read, write):
            connected.set()
            try:
                await self._server.run(read, write, options)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._transport.terminate()  # requests that still wait are answered

    async def handle(self, scope: Message, receive: Any, send: Any) -> None:
        """Answer one HTTP request of the session."""
        await self._transport.handle_request(scope, receive, send)


def _server(offer: Offer, name: str, version: str, instructions: str) -> Any:
    return (_second if _is_second_generation else _first)(offer, name, version, instructions)


def _second(offer: Offer, name: str, version: str, instructions: str) -> Any:
    async def list_tools(_context: Any, _params: Any) -> Any:
        try:
            return types.ListToolsResult.model_validate({"tools": await offer.list_tools()})
        except ProtocolFailure as failure:
            raise MCPError(failure.code, failure.message) from failure

    async def call_tool(context: Any, params: Any) -> Any:
        meta = cast("dict[str, Any]", (context.params or {}).get("_meta") or {})
        report = context.session.report_progress if meta.get("progressToken") is not None else None

        async def tools_changed() -> None:
            # With the answer to this call: the client may have no other stream open.
            changed = types.ToolListChangedNotification()
            await context.session.send_notification(changed, related_request_id=context.request_id)

        caller = Caller(report, tools_changed)
        try:
            result = await offer.call_tool(params.name, dict(params.arguments or {}), caller)
        except ProtocolFailure as failure:
            raise MCPError(failure.code, failure.message) from failure
        return types.CallToolResult.model_validate(result)

    return Server(
        name, version=version, instructions=instructions, on_list_tools=list_tools, on_call_tool=cast("Any", call_tool)
    )


def _first(offer: Offer, name: str, version: str, instructions: str) -> Any:
    server: Any = Server(name, version=version, instructions=instructions)

    async def list_tools(_request: Any) -> Any:
        try:
            return types.ServerResult(types.ListToolsResult.model_validate({"tools": await offer.list_tools()}))
        except ProtocolFailure as failure:
            raise MCPError(types.ErrorData(code=failure.code, message=failure.message)) from failure

    async def call_tool(request: Any) -> Any:
        context = server.request_context
        token = context.meta.progressToken if context.meta is not None else None

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await context.session.send_progress_notification(
                token, progress, total, message, related_request_id=str(context.request_id)
            )

        async def tools_changed() -> None:
            changed = types.ServerNotification(types.ToolListChangedNotification())
            await context.session.send_notification(changed, related_request_id=context.request_id)

        caller = Caller(report if token is not None else None, tools_changed)
        try:
            result = await offer.call_tool(request.params.name, dict(request.params.arguments or {}), caller)
        except ProtocolFailure as failure:
            raise MCPError(types.ErrorData(code=failure.code, message=failure.message)) from failure
        return types.ServerResult(types.CallToolResult.model_validate(result))

    server.request_handlers[types.ListToolsRequest] = list_tools
    server.request_handlers[types.CallToolRequest] = call_tool
    return server
