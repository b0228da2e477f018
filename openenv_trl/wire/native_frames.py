"""The native wire's frames. ``docs/wire.md`` specifies them for writers of other clients and servers.

A message is a MessagePack array of frames, so that frames that are ready together travel together. A frame is an array:
its kind, then what that kind holds. Sessions are numbered by the client, calls by the client within their session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from openenv_trl.errors import ProtocolError
from openenv_trl.wire.faults import Fault
from openenv_trl.wire.native_codec import array_header, pack, unpack

SUBPROTOCOL: Final = "openenv.native.v1"
"""The WebSocket subprotocol by which a client offers this wire. A server that does not know it ignores it."""

GREETING: Final = 0
"""Both ways, first: ``[0, {"max_message_bytes": ...}]``."""

OPEN: Final = 1
RESET: Final = 2
STEP: Final = 3
STATE: Final = 4
RPC: Final = 5
CLOSE: Final = 6
CANCEL: Final = 7
RESUME: Final = 8

OBSERVATION: Final = 16
STATE_REPLY: Final = 17
RPC_REPLY: Final = 18
OPENED: Final = 19
CLOSED: Final = 20
ERROR: Final = 21

MOST_SESSIONS: Final = 2**32 - 1
JOINED_FRAMES: Final = 32
"""Frames in one message at most: enough to share its cost, and few enough that both sides work at the same time."""
_JOINED_BYTES = 256 * 1024  # of frames in one message, unless a single frame is longer

_BODY_IS_OBJECT = frozenset((OPEN, RESET, STEP, RPC, RESUME))
_BODIES = {RESET: "arguments", STEP: "action"}  # their names in errors
_REQUESTS = range(OPEN, RESUME + 1)
_REPLY_LENGTHS = {OBSERVATION: 6, STATE_REPLY: 4, RPC_REPLY: 4, OPENED: 4, CLOSED: 3, ERROR: 6}


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a peer says of itself, first of all.

    Attributes:
        max_message_bytes: The longest message that it takes.
        details: Whatever else it told.
    """

    max_message_bytes: int
    details: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class NativeRequest:
    """A client's request, known to be well-formed.

    Attributes:
        kind: `OPEN` to `RESUME`.
        session: The client's number of the session.
        call: The client's number of the call, within the session.
        body: The call's own data; None where the kind has none.
        deadline_s: How long the call may take on the server, in seconds; None for as long as it likes.
    """

    kind: int
    session: int
    call: int
    body: Any
    deadline_s: float | None


def parse_message(message: bytes) -> list[Any]:
    """Return the frames of a message, not yet looked into.

    Raises:
        ProtocolError: It is no message of this wire.
    """
    frames = unpack(message)
    if not isinstance(frames, list):
        raise ProtocolError("a message of the native wire is an array of frames")
    return cast("list[Any]", frames)


def parse_request(frame: Any) -> NativeRequest:
    """Return the request in a frame.

    Raises:
        ProtocolError: It is none, or not well-formed.
    """
    if type(frame) is list:
        items = cast("list[Any]", frame)
        count = len(items)
        if 3 <= count <= 5:
            kind, session, call = items[0], items[1], items[2]
            body = items[3] if count > 3 else None
            deadline_ms = items[4] if count > 4 else None
            if (
                type(kind) is int
                and type(session) is int
                and type(call) is int
                and kind in _REQUESTS
                and 0 <= session <= MOST_SESSIONS
                and 0 < call <= MOST_SESSIONS
                and (type(body) is dict if kind in _BODY_IS_OBJECT else body is None)
                and (deadline_ms is None or (type(deadline_ms) in (int, float) and deadline_ms > 0))
            ):
                return NativeRequest(kind, session, call, body, None if deadline_ms is None else deadline_ms / 1000)
    raise ProtocolError("a request of the native wire is [kind, session, call, body, deadline_ms]")


def parse_greeting(frame: Any) -> Greeting | None:
    """Return the greeting in a frame; None where the frame is another one.

    Raises:
        ProtocolError: It is a greeting that is not well-formed.
    """
    if type(frame) is not list or not frame or cast("list[Any]", frame)[0] != GREETING:
        return None
    items = cast("list[Any]", frame)
    details = items[1] if len(items) == 2 else None
    limit = cast("dict[str, Any]", details).get("max_message_bytes") if isinstance(details, dict) else None
    if type(limit) is not int or limit < 1024:
        raise ProtocolError('a greeting is [0, {"max_message_bytes": 1024 or more}]')
    return Greeting(limit, cast("dict[str, Any]", details))


def check_reply(frame: Any) -> list[Any]:
    """Return a server's frame, known to have as many items as its kind has.

    Raises:
        ProtocolError: It is none.
    """
    if type(frame) is list:
        items = cast("list[Any]", frame)
        if items and _REPLY_LENGTHS.get(items[0]) == len(items) and type(items[1]) is type(items[2]) is int:
            return items
    raise ProtocolError("the server sent a frame that is not one of the native wire's")


def encode_greeting(max_message_bytes: int, **details: Any) -> bytes:
    """Return a greeting's frame."""
    return pack([GREETING, {"max_message_bytes": max_message_bytes, **details}])


def encode_request(kind: int, session: int, call: int, body: Any = None, deadline_s: float | None = None) -> bytes:
    """Return a request's frame.

    Raises:
        TypeError: The body holds something that the wire cannot express.
    """
    at = _BODIES.get(kind, "message")
    if deadline_s is not None:
        return pack([kind, session, call, body, max(1, int(deadline_s * 1000))], at)
    return pack([kind, session, call] if body is None else [kind, session, call, body], at)


def encode_error(session: int, call: int, fault: Fault) -> bytes:
    """Return the frame of a call that failed."""
    return pack([ERROR, session, call, fault.message, str.__str__(fault.code), fault.details])


def parse_error(items: list[Any]) -> Fault:
    """Return the fault in an error frame."""
    details = items[5]
    known = cast("dict[str, Any]", details) if isinstance(details, dict) else {}
    return Fault(str(items[3]), str(items[4]), known)


def join(frames: Iterable[bytes]) -> list[bytes]:
    """Return messages that hold the frames in order: few, and none much longer than its longest frame."""
    messages: list[bytes] = []
    joined: list[bytes] = []
    size = 0
    for frame in frames:
        if joined and size + len(frame) > _JOINED_BYTES:
            messages.append(array_header(len(joined)) + b"".join(joined))
            joined, size = [], 0
        joined.append(frame)
        size += len(frame)
    if joined:
        messages.append(array_header(len(joined)) + b"".join(joined))
    return messages


HEADER_BYTES: Final = 5
"""What a message adds at most to its frames: a frame may be as long as the peer's limit less this."""
