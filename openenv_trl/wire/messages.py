"""The messages a client may send, as pydantic models: the source of the wording of every validation error.

Names as in the public package. The server builds them only for a message that is already known to be wrong,
so that its ``errors`` list is pydantic's own.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
