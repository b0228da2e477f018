"""JSON-RPC 2.0 as it travels inside ``mcp`` frames: requests to an environment's tools, and their responses.

Every request gets one response, notifications too: the frames around it are request and reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pydantic import ValidationError

RpcId = str | int | None

_MOST_ERRORS = 20  # told of one request: what is wrong with it may be longer than the request
_LONGEST_REASON = 4_000  # characters

NO_MCP_TEXT = "Environment does not support MCP"
"""What a server answers to a tool request where its environment has no tools."""


class RpcErrorCode(IntEnum):
    """The error codes in use."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SERVER_ERROR = -32000


class McpMethod(str, Enum):
    """The methods about tools."""

    TOOLS_LIST = "tools/list"
    TOOLS_CALL = "tools/call"


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """A request known to be well-formed."""

    method: str
    params: dict[str, Any]
    id: RpcId


def parse_rpc(data: dict[str, Any]) -> RpcRequest | dict[str, Any]:
    """Return the request in an ``mcp`` frame, or the error response to answer it with.

    The error goes under the request's own id where it has a usable one.
    """
    from pydantic import ValidationError

    from openenv_trl.wire.messages import JsonRpcRequest  # a model to build, which only a server needs

    try:
        request = JsonRpcRequest.model_validate(data)
    except ValidationError as error:
        sent = data.get("id")
        known = sent if isinstance(sent, str | int) and not isinstance(sent, bool) else None
        return rpc_error(known, RpcErrorCode.INVALID_REQUEST, f"Invalid request: {_reason(error)}")
    return RpcRequest(request.method, request.params, request.id)


def _reason(error: ValidationError) -> str:
    count = error.error_count()
    return str(error)[:_LONGEST_REASON] if count <= _MOST_ERRORS else f"{count} validation errors"


def rpc_request(request_id: RpcId, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a request, ready for an ``mcp`` frame."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def rpc_result(request_id: RpcId, result: Any) -> dict[str, Any]:
    """Return the response to a request that went well."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def rpc_error(request_id: RpcId, code: RpcErrorCode, message: str, data: Any = None) -> dict[str, Any]:
    """Return the response to a request that did not."""
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": int(code), "message": message, "data": data},
    }


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """The error in a response."""

    code: int
    message: str
    data: Any = None


def parse_rpc_response(data: dict[str, Any]) -> dict[str, Any] | RpcFailure:
    """Return the result in a response, or its error. A response with neither counts as an empty result."""
    error = data.get("error")
    if isinstance(error, dict):
        fields = cast("dict[str, Any]", error)
        code = fields.get("code")
        return RpcFailure(code if isinstance(code, int) else 0, str(fields.get("message", "")), fields.get("data"))
    result = data.get("result")
    return cast("dict[str, Any]", result) if isinstance(result, dict) else {}
