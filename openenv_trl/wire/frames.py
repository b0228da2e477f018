"""Frames in and out: one JSON object in each text message, one reply for each request.

A well-formed request is recognised without building a model of it; only a wrong one is given to pydantic,
for its words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, cast

from openenv_trl.errors import ProtocolError
from openenv_trl.wire.codec import decode, encode
from openenv_trl.wire.faults import Fault, WSErrorCode

RequestType = Literal["reset", "step", "state", "close", "mcp"]
ReplyType = Literal["observation", "state", "mcp"]

_BODIES = {"reset": "arguments", "step": "action"}  # their names in errors
_KINDS = frozenset(("reset", "step", "state", "close", "mcp"))

MAX_MESSAGE_BYTES = 100 * 1024 * 1024
"""The longest message that either side takes unless told otherwise: the public client's limit."""


WAIT_HEADER = "openenv-session-wait"
"""The handshake's header with the seconds that a client will wait for a slot, where the server has none free. A server
that does not know it refuses at once."""


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request, known to be well-formed."""

    type: RequestType
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply that is not an error."""

    type: ReplyType
    data: dict[str, Any]


def parse_request(text: str) -> Request | Fault:
    """Return the request in a client's text message, or the fault to answer it with."""
    try:
        message = decode(text)
    except json.JSONDecodeError as error:
        return Fault(f"Invalid JSON: {error}", WSErrorCode.INVALID_JSON.value)
    if not isinstance(message, dict):
        from openenv_trl.wire.messages import fault_of_non_object

        return fault_of_non_object(message)
    fields = cast("dict[str, Any]", message)
    kind = fields.get("type", "")
    if not isinstance(kind, str) or kind not in _KINDS:
        return Fault(f"Unknown message type: {kind}", WSErrorCode.UNKNOWN_TYPE.value)
    data: Any = fields.get("data")
    if kind in ("state", "close"):
        well_formed = len(fields) == 1
    elif data is None and "data" not in fields:
        well_formed = kind == "reset" and len(fields) == 1
    else:
        well_formed = type(data) is dict and len(fields) == 2
    if not well_formed:
        from openenv_trl.wire.messages import fault_of_message  # models to build, which a good client never needs

        return fault_of_message(kind, fields)
    return Request(kind, cast("dict[str, Any]", data or {}))


def binary_fault() -> Fault:
    """Return the answer to a binary message."""
    return Fault(
        "Binary messages are not part of this protocol: send each JSON object as a text message.",
        WSErrorCode.INVALID_JSON.value,
    )


def encode_request(kind: RequestType, data: dict[str, Any] | None = None) -> bytes:
    """Return the JSON of a client's request.

    Raises:
        TypeError: The data hold something that JSON cannot express.
    """
    if data is None:
        return b'{"type":"%b"}' % kind.encode()
    return b'{"type":"%b","data":%b}' % (kind.encode(), encode(data, at=_BODIES.get(kind, "message")))


def encode_reply(kind: ReplyType, data: dict[str, Any]) -> bytes:
    """Return the JSON of a server's reply.

    Raises:
        TypeError: The data hold something that JSON cannot express.
    """
    return b'{"type":"%b","data":%b}' % (kind.encode(), encode(data, at="" if kind == "observation" else kind))


def parse_reply(text: str | bytes) -> Reply | Fault:
    """Return what a server answered.

    Raises:
        ProtocolError: The message is not one of an OpenEnv server.
    """
    try:
        message = decode(text)
    except json.JSONDecodeError as error:
        raise ProtocolError(f"The server sent something that is not JSON: {error}") from error
    fields = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
    kind, data = fields.get("type"), fields.get("data")
    if isinstance(data, dict):
        body = cast("dict[str, Any]", data)
        if kind in ("observation", "state", "mcp"):
            return Reply(kind, body)
        if kind == "error":
            rest = {key: value for key, value in body.items() if key not in ("message", "code")}
            return Fault(str(body.get("message", "")), str(body.get("code", "")), rest)
    excerpt = text[:200] if isinstance(text, str) else text[:200].decode(errors="replace")
    raise ProtocolError(f"The server sent a message that is not one of the OpenEnv protocol: {excerpt}")
