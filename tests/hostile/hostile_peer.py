"""A peer that keeps to no rule: bytes on a socket, WebSocket frames of any shape, and what comes back."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0
MASK = b"\x01\x02\x03\x04"
DROPPED = 1006  # the connection ended without a closing frame


def masked(payload: bytes) -> bytes:
    size = len(payload)
    key = int.from_bytes((MASK * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def frame(
    payload: bytes = b"",
    opcode: int = TEXT,
    *,
    fin: bool = True,
    reserved: int = 0,
    mask: bool = True,
    length: int | None = None,
) -> bytes:
    """A frame; ``length`` is what its head says where that is not true."""
    said = len(payload) if length is None else length
    head = bytes([(fin << 7) | (reserved << 4) | opcode])
    bit = mask << 7
    if said < 126:
        head += bytes([bit | said])
    elif said < 65_536:
        head += bytes([bit | 126]) + struct.pack("!H", said)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", said)
    return head + (MASK + masked(payload) if mask else payload)


def close_frame(payload: bytes) -> bytes:
    return frame(payload, CLOSE)


@dataclass(frozen=True)
class Reply:
    """A message of the server's: its frame's kind and payload."""

    opcode: int
    payload: bytes


class Peer:
    """One connection."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))
        self.buffer = bytearray()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def upgrade(self, path: str = "/ws", subprotocol: str | None = None) -> bytes:
        """Ask for a WebSocket; returns the head of the answer."""
        key = base64.b64encode(os.urandom(16)).decode()
        offer = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
        self.send(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{offer}\r\n".encode()
        )
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        end = self.buffer.index(b"\r\n\r\n")
        head = bytes(self.buffer[:end])
        del self.buffer[: end + 4]
        return head

    def send(self, data: bytes) -> bool:
        """Send all of it; whether the server took it."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def send_while_taken(self, data: bytes, *, times: int, patience_s: float) -> int:
        """Send it so many times, or until the server takes nothing for a while; returns the bytes taken."""
        taken = 0
        self.socket.settimeout(patience_s)
        with contextlib.suppress(OSError):
            for _ in range(times):
                view = memoryview(data)
                while view:
                    sent = self.socket.send(view)
                    taken += sent
                    view = view[sent:]
        self.socket.settimeout(20)
        return taken

    def replies(self, timeout_s: float = 20) -> Iterator[Reply]:
        """What the server says, until it closes (the last reply is its closing frame) or drops the connection."""
        end = time.monotonic() + timeout_s
        while True:
            reply = self._parse()
            while reply is None:
                self.socket.settimeout(max(0.01, end - time.monotonic()))
                try:
                    self._more()
                except TimeoutError:
                    raise TimeoutError(f"no more replies within {timeout_s} s") from None
                except OSError:
                    return
                reply = self._parse()
            yield reply
            if reply.opcode == CLOSE:
                return

    def reply(self, timeout_s: float = 20) -> Reply:
        """The next message, pings and pongs left out."""
        for reply in self.replies(timeout_s):
            if reply.opcode not in (PING, PONG):
                return reply
        return Reply(CLOSE, struct.pack("!H", DROPPED))

    def end(self, timeout_s: float = 20) -> tuple[list[Reply], int]:
        """All that comes, and the code that the connection ended with."""
        replies = [reply for reply in self.replies(timeout_s) if reply.opcode not in (PING, PONG)]
        if replies and replies[-1].opcode == CLOSE:
            payload = replies[-1].payload
            return replies[:-1], struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else 1005
        return replies, DROPPED

    def rest(self, timeout_s: float = 20) -> bytes:
        """All bytes that come until the server closes the connection."""
        self.socket.settimeout(timeout_s)
        with contextlib.suppress(ConnectionError):
            while True:
                self._more()
        return bytes(self.buffer)

    def _more(self) -> None:
        data = self.socket.recv(262_144)
        if not data:
            raise ConnectionError("closed")
        self.buffer += data

    def _parse(self) -> Reply | None:
        data = self.buffer
        if len(data) < 2:
            return None
        size, start = data[1] & 127, 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(data[2:10], "big"), 10
        if len(data) < start + size:
            return None
        reply = Reply(data[0] & 15, bytes(data[start : start + size]))
        del data[: start + size]
        return reply
