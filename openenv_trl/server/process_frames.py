"""What travels between the server and the process of one environment: pickles, each after its length.

Both ends are the same program, and the environment's code is as trusted as the server's own: a process of its own
protects the server from hanging and from crashing with an environment, not from malice. See the sandbox for that.
"""

from __future__ import annotations

import pickle
import socket
import struct
import traceback
from dataclasses import dataclass, field
from typing import Any

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.server.hooks import Hooks
from openenv_trl.types import Tool

_LENGTH = struct.Struct("!Q")


@dataclass(slots=True)
class Call:
    """Call a method of the environment, or read an attribute of it."""

    attribute: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a worker says of its environment once that is built."""

    hooks: Hooks
    tools: list[Tool]
    methods: frozenset[str]


@dataclass(frozen=True, slots=True)
class Returned:
    """What came of a call."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised, without the exception itself: nobody knows whether it can be pickled.

    Attributes:
        text: Its text, or its type's name.
        trace: Its traceback, for the log.
        errors: The fields of an `ActionValidationError`; None of any other.
        is_configuration: Whether it is a `ConfigurationError`.
    """

    text: str
    trace: str
    errors: list[dict[str, Any]] | None = None
    is_configuration: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Describe an exception."""
        text = str(error) or type(error).__name__
        if not isinstance(error, Exception):
            text = f"the environment raised {type(error).__name__}"
        errors = error.errors if isinstance(error, ActionValidationError) else None
        trace = "".join(traceback.format_exception(error))
        return cls(text, trace, errors, isinstance(error, ConfigurationError))


def pack(message: object) -> bytes:
    """Return a message as it travels.

    Raises:
        Exception: It cannot be pickled: `pickle.PicklingError` most often, or what one of its objects raises.
    """
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def receive(way: socket.socket) -> Any:
    """Wait for a message and return it (blocking). None where the other end is gone."""
    head = _exactly(way, _LENGTH.size)
    if head is None:
        return None
    data = _exactly(way, _LENGTH.unpack(head)[0])
    return None if data is None else pickle.loads(data)


class Unpacker:
    """Puts messages together from whatever pieces they arrive in."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes | None:
        """Take a piece. Returns the pickle of a message that is now whole."""
        self._buffer += data
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        whole = bytes(memoryview(self._buffer)[_LENGTH.size : end])
        del self._buffer[:end]
        return whole


def _exactly(way: socket.socket, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = way.recv(min(length - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
