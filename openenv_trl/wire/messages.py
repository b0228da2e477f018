"""The messages a client may send, as pydantic models: the source of the wording of every validation error.

Names as in the public package. The server builds them only for a message that is already known to be wrong,
so that its ``errors`` list is pydantic's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openenv_trl.wire.faults import Fault, validation_fault
from openenv_trl.wire.rpc import RpcErrorCode

_FORBID = ConfigDict(extra="forbid", defer_build=True)


class WSResetMessage(BaseModel):
    """Begin an episode; ``data`` holds the arguments of ``reset``."""

    model_config = _FORBID

    type: Literal["reset"] = "reset"
    data: dict[str, Any] = Field(default_factory=dict)


class WSStepMessage(BaseModel):
    """Take one step; ``data`` is the action itself."""

    model_config = _FORBID

    type: Literal["step"] = "step"
    data: dict[str, Any]


class WSStateMessage(BaseModel):
    """Ask where the episode stands."""

    model_config = _FORBID

    type: Literal["state"] = "state"


class WSCloseMessage(BaseModel):
    """End the session."""

    model_config = _FORBID

    type: Literal["close"] = "close"


class WSMCPMessage(BaseModel):
    """A JSON-RPC request to the environment's tools."""

    model_config = _FORBID

    type: Literal["mcp"] = "mcp"
    data: dict[str, Any]


class JsonRpcRequest(BaseModel):
    """One JSON-RPC 2.0 request."""

    model_config = _FORBID

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] = Field(default_factory=dict)
    id: str | int | None = None


class WSObservationResponse(BaseModel):
    """What a reset or a step brought."""

    model_config = _FORBID

    type: Literal["observation"] = "observation"
    data: dict[str, Any]


class WSStateResponse(BaseModel):
    """Where the episode stands."""

    model_config = _FORBID

    type: Literal["state"] = "state"
    data: dict[str, Any]


class WSErrorResponse(BaseModel):
    """What went wrong."""

    model_config = _FORBID

    type: Literal["error"] = "error"
    data: dict[str, Any]


class WSMCPResponse(BaseModel):
    """The response to a JSON-RPC request."""

    model_config = _FORBID

    type: Literal["mcp"] = "mcp"
    data: dict[str, Any]


class JsonRpcError(BaseModel):
    """Why a JSON-RPC request failed."""

    model_config = _FORBID

    code: int
    message: str
    data: Any = None

    @classmethod
    def from_code(cls, code: RpcErrorCode, message: str | None = None, data: Any = None) -> JsonRpcError:
        """Return an error of a known code, with the code's own words where there are no better ones."""
        words = code.name.replace("_", " ").capitalize()
        return cls(code=int(code), message=message or words, data=data)


class JsonRpcResponse(BaseModel):
    """The response to one JSON-RPC 2.0 request: a result or an error."""

    model_config = _FORBID

    jsonrpc: Literal["2.0"] = "2.0"
    result: Any = None
    error: JsonRpcError | None = None
    id: str | int | None = None

    @classmethod
    def success(cls, result: Any, request_id: str | int | None = None) -> JsonRpcResponse:
        """Return the response to a request that went well."""
        return cls(result=result, id=request_id)

    @classmethod
    def error_response(
        cls,
        code: RpcErrorCode,
        message: str | None = None,
        data: Any = None,
        request_id: str | int | None = None,
    ) -> JsonRpcResponse:
        """Return the response to a request that did not."""
        return cls(error=JsonRpcError.from_code(code, message, data), id=request_id)


WSIncomingMessage = Annotated[
    WSResetMessage | WSStepMessage | WSStateMessage | WSCloseMessage, Field(discriminator="type")
]
"""Any message about the episode that a client may send."""


MESSAGE_MODELS: dict[str, type[BaseModel]] = {
    "reset": WSResetMessage,
    "step": WSStepMessage,
    "state": WSStateMessage,
    "close": WSCloseMessage,
    "mcp": WSMCPMessage,
}

_JSON_NAMES = {"list": "an array", "str": "a string", "bool": "a boolean", "NoneType": "null"}


def fault_of_message(kind: str, fields: dict[str, Any]) -> Fault:
    """Return the fault of a message of a known type that is not well-formed."""
    return _fault(MESSAGE_MODELS[kind].model_validate, fields, "Invalid message")


def fault_of_non_object(message: Any) -> Fault:
    """Return the fault of a message that is JSON but no object."""
    found = _JSON_NAMES.get(type(message).__name__, "a number")
    return _fault(
        TypeAdapter(dict[str, Any]).validate_python, message, f"Invalid message: expected a JSON object, got {found}"
    )


def _fault(validate: Callable[[Any], object], message: Any, text: str) -> Fault:
    try:
        validate(message)
    except ValidationError as error:
        return validation_fault(error, text)
    raise AssertionError("a well-formed message has no fault")
