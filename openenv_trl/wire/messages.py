"""The messages a client may send, as pydantic models: the source of the wording of every validation error.

Names as in the public package. The server builds them only for a message that is already known to be wrong,
so that its ``errors`` list is pydantic's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openenv_trl.wire.faults import Fault, validation_fault

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
