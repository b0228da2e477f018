"""The parent's word to a worker, and the worker's to its parent, over a pair of sockets.

A worker that hears nothing more has lost its parent, and ends. On Linux the kernel ends it too, should it be stuck.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable

import anyio

DRAIN = b"d"
"""To a worker: take no new sessions, and end when the running episodes have."""
QUIT = b"q"
"""To a worker: end now. The same as the end of the stream."""

_PDEATHSIG = 1


class ParentLink:
    """A worker's end.

    Args:
        fd: The socket to the parent.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)

    def tell_ready(self, longest_stop_s: float) -> None:
        """Tell the parent that connections are taken, and how long an orderly stop may take."""
        try:
            self._socket.send(f"{longest_stop_s}\n".encode())
        except OSError:
            return  # the parent is gone, which `listen` finds too

    async def listen(self, drain: Callable[[], None], end: Callable[[], None]) -> None:
        """Do what the parent says, until it says to end or is gone."""
        while True:
            await anyio.wait_readable(self._socket)
            try:
                words = self._socket.recv(64)
            except BlockingIOError:
                continue
            except OSError:
                words = b""
            if not words or QUIT in words:
                end()
                return
            drain()


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent's ends, where the kernel can (Linux)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
