"""JSON-RPC about an environment's tools, in the public package's dialect: over HTTP, its own socket, and ``/ws``.

Every request gets one response, under its own id wherever it had one.

Source: section "MCP" of the OpenEnv wire, version 0.10.0.
"""

from __future__ import annotations

from typing import Any, cast

from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    EnvironmentFactoryError,
    OpenEnvError,
    SessionCapacityError,
    SessionLostError,
    SessionNotFoundError,
    SessionStateError,
)
from openenv_trl.server.host import SessionHost
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.types import CallToolAction, ListToolsAction
from openenv_trl.wire.faults import CONFIGURATION, fault_of
from openenv_trl.wire.model_values import dump_model
from openenv_trl.wire.rpc import NO_MCP_TEXT, RpcErrorCode, RpcId, RpcRequest, parse_rpc, rpc_error, rpc_result
from openenv_trl.wire.tools import ToolErrorType, mcp_result, mcp_tool

CREATE, CLOSE = "openenv/session/create", "openenv/session/close"
_ABOUT_TOOLS = ("tools/list", "tools/call")


async def answer_rpc(session: HostedSession, data: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request that came over a socket with a session of its own, of which it is asked."""
    request = parse_rpc(data)
    if not isinstance(request, RpcRequest):
        return request
    if request.method == CREATE:
        return rpc_result(request.id, {"session_id": session.session_id})
    if request.method == CLOSE:
        if request.params.get("session_id") == session.session_id:
            text = "Cannot close active WebSocket-managed session via MCP method"
            return rpc_error(request.id, RpcErrorCode.INVALID_REQUEST, text)
        return await _close(session.host, request)
    if request.method not in _ABOUT_TOOLS:
        return _no_such_method(request)
    return await _answered(session, request)


async def answer_rpc_without_socket(host: SessionHost, data: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request that names the session it is about.

    One that names none is answered by an environment of its own, which is gone after it.
    """
    request = parse_rpc(data)
    if not isinstance(request, RpcRequest):
        return request
    if request.method == CLOSE:
        return await _close(host, request)
    if request.method != CREATE and request.method not in _ABOUT_TOOLS:
        return _no_such_method(request)
    named = request.params.get("session_id")
    try:
        if request.method == CREATE:
            opened = await host.open(transport="mcp", held=False)
            return rpc_result(request.id, {"session_id": opened.session_id})
        if named is not None:
            return await _answered(host.sessions.find(str(named)), request)
        async with host.temporary() as session:
            return await _answered(session, request)
    except SessionNotFoundError as error:
        return rpc_error(request.id, RpcErrorCode.INVALID_PARAMS, str(error))
    except OpenEnvError as error:
        return refusal(request.id, error)


def refusal(request_id: RpcId, error: OpenEnvError) -> dict[str, Any]:
    """Return the response where there is no session to answer."""
    data = None
    if isinstance(error, SessionCapacityError | EnvironmentFactoryError):
        data = fault_of(error).details
        return rpc_error(request_id, RpcErrorCode.SERVER_ERROR, fault_of(error).message, data)
    return rpc_error(request_id, RpcErrorCode.SERVER_ERROR, str(error), data)


async def _close(host: SessionHost, request: RpcRequest) -> dict[str, Any]:
    session_id = request.params.get("session_id")
    if not isinstance(session_id, str) or not session_id:
        text = "Invalid params - 'session_id' is required"
        return rpc_error(request.id, RpcErrorCode.INVALID_PARAMS, text)
    try:
        is_over = await host.close(session_id, when_released=True)
    except SessionNotFoundError as error:
        return rpc_error(request.id, RpcErrorCode.INVALID_PARAMS, str(error))
    return rpc_result(
        request.id,
        {"session_id": session_id, "closed": True}
        if is_over
        else {"session_id": session_id, "closed": False, "closing": True},
    )


async def _answered(session: HostedSession, request: RpcRequest) -> dict[str, Any]:
    if request.method == "tools/call" and _named_tool(request) is None:
        return rpc_error(request.id, RpcErrorCode.INVALID_PARAMS, "Missing 'name' in params")
    by_steps = not session.acts_by_tools
    if by_steps and session.host.action_cls not in (CallToolAction, ListToolsAction):
        return rpc_error(request.id, RpcErrorCode.INTERNAL_ERROR, NO_MCP_TEXT)
    if request.method == "tools/call":
        return await _call_tool(session, request, by_steps=by_steps)
    try:
        return rpc_result(request.id, {"tools": await _list_tools(session, by_steps=by_steps)})
    except OpenEnvError as error:
        return _failed(request, error)


async def _list_tools(session: HostedSession, *, by_steps: bool) -> list[dict[str, Any]]:
    if session.lists_tools_itself:
        return await session.call_method("listed_tools")
    tools = getattr(await session.step({"type": "list_tools"}), "tools", ()) if by_steps else session.tools
    return [mcp_tool(tool) for tool in tools]


def _named_tool(request: RpcRequest) -> str | None:
    name = request.params.get("name")
    return name if isinstance(name, str) and name else None


async def _call_tool(session: HostedSession, request: RpcRequest, *, by_steps: bool) -> dict[str, Any]:
    name, arguments = _named_tool(request) or "", request.params.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        return rpc_error(request.id, RpcErrorCode.INVALID_PARAMS, "'arguments' in params must be an object")
    try:
        given = cast("dict[str, Any]", arguments or {})
        if by_steps:  # an environment without a tool of its own, whose step takes the actions about tools
            observation = await session.step({"type": "call_tool", "tool_name": name, "arguments": given})
            return rpc_result(request.id, dump_model(observation, at="observation"))
        return rpc_result(request.id, mcp_result(await session.call_tool(name, given)))
    except (OpenEnvError, TypeError) as error:
        return _failed(request, error, {"error_type": _whose_fault(session, name, error)})


def _whose_fault(session: HostedSession, name: str, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return ToolErrorType.TIMEOUT.value
    if not isinstance(error, ActionValidationError):
        return ToolErrorType.EXECUTION_ERROR.value
    is_known = any(tool.name == name for tool in session.tools)
    return (ToolErrorType.INVALID_ARGS if is_known else ToolErrorType.TOOL_NOT_FOUND).value


def _failed(request: RpcRequest, error: Exception, data: dict[str, str] | None = None) -> dict[str, Any]:
    if isinstance(error, SessionStateError):
        return rpc_error(request.id, RpcErrorCode.INVALID_REQUEST, str(error))
    if isinstance(error, ConfigurationError):
        data = {**(data or {}), **CONFIGURATION}
    speaks_for_itself = isinstance(error, ActionValidationError | ConfigurationError | SessionLostError | TimeoutError)
    text = str(error) if speaks_for_itself else f"Error calling tool '{request.params.get('name')}': {error}"
    return rpc_error(request.id, RpcErrorCode.INTERNAL_ERROR, text, data)


def _no_such_method(request: RpcRequest) -> dict[str, Any]:
    return rpc_error(request.id, RpcErrorCode.METHOD_NOT_FOUND, f"Method not found: {request.method}")
