"""What travels between the server and a process of the sandbox: JSON objects, each after its length.

The server takes nothing that comes out of a sandbox at its word: lengths are limited, and what is no frame ends the
session. JSON, since reading it runs no code.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct("!I")
_MAX_SMALL = 1 << 14  # a frame of so many bytes is read in two milliseconds, whatever is in it
_MAX_PARTS = 64  # commas and brackets of a longer one


class BrokenFrameError(Exception):
    """What came is no frame, or too long a one."""


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as it travels."""
    data = json.dumps(message).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(data)) + data


class Unpacker:
    """Puts frames together from whatever pieces they arrive in.

    Args:
        limit: The most bytes of one frame.
        flat: Whether a long frame must be a few texts, which are quick to read: JSON of many small lists takes a
            tenth of a second for each megabyte, and no other thread runs meanwhile.
    """

    def __init__(self, limit: int, *, flat: bool = False) -> None:
        self._limit = limit
        self._flat = flat
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take a piece and return the messages that are now whole.

        Raises:
            BrokenFrameError: What came is no frame, or too long a one.
        """
        self._buffer += data
        messages: list[dict[str, Any]] = []
        while len(self._buffer) >= _LENGTH.size:
            length = _LENGTH.unpack_from(self._buffer)[0]
            if length > self._limit:
                raise BrokenFrameError(f"a frame of {length} bytes, where {self._limit} are allowed")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frame = bytes(self._buffer[_LENGTH.size : end])
            if self._flat and length > _MAX_SMALL and sum(map(frame.count, (b",", b"[", b"{"))) > _MAX_PARTS:
                raise BrokenFrameError("a long frame of many values")
            messages.append(_message(frame))
            del self._buffer[:end]
        return messages


def receive(way: socket.socket, limit: int, deadline: float | None = None) -> dict[str, Any] | None:
    """Wait for a message and return it; None where the other end is gone.

    Args:
        way: Where it comes from.
        limit: The most bytes of it.
        deadline: When it must be there whole, by the monotonic clock; None to wait for ever.

    Raises:
        BrokenFrameError: What came is no frame, or too long a one.
        TimeoutError: The deadline passed.
    """
    head = _exactly(way, _LENGTH.size, deadline)
    if head is None:
        return None
    length = _LENGTH.unpack(head)[0]
    if length > limit:
        raise BrokenFrameError(f"a frame of {length} bytes, where {limit} are allowed")
    data = _exactly(way, length, deadline)
    return None if data is None else _message(data)


def _message(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise BrokenFrameError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise BrokenFrameError("not a JSON object")
    return message  # pyright: ignore[reportUnknownVariableType]


def _exactly(way: socket.socket, length: int, deadline: float | None) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        if deadline is not None:  # for all pieces together: they may come one by one
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            way.settimeout(left)
        piece = way.recv(min(length - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
