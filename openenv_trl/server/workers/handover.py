"""Handing a connected socket to another worker process: the file descriptor, with what was already read from it.

The socket stays the same connection to the client; after the hand-over the first worker has no part in it. A forwarded
HTTP request goes the same way, over one end of a pair of sockets (`forwarding`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from openenv_trl.server.workers.place import address_of

logger = logging.getLogger("openenv_trl.server")

FORWARDED = "openenv_trl.forwarded"
"""The key in a scope's state that marks what another worker handed over: it is answered here, whoever it names."""

_BACKLOG = 4096
_PATIENCE_S = 1.0  # for a sibling whose queue is full; the event loop waits with it, so not longer
_CHUNK = 65_536
_PEER = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A socket that came from another worker.

    Attributes:
        socket: The socket, non-blocking.
        head: What was read from it before.
        client: The client's address where the socket does not know it.
    """

    socket: socket.socket
    head: bytes
    client: tuple[str, int] | None


def listen(family: str, worker: int) -> socket.socket:
    """Return the socket at which a worker takes what its siblings hand over."""
    address = address_of(family, worker)
    if not address.startswith("\0"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)  # of this worker's predecessor
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(address)
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening


def send_socket(fd: int, head: bytes, family: str, worker: int, *, client: tuple[str, int] | None = None) -> bool:
    """Give another worker a copy of a socket's file descriptor.

    Args:
        fd: The socket's; the caller still closes its own.
        head: What was read from it and is still to be answered.
        family: See `WorkerPlace`.
        worker: Who gets it.
        client: The client's address where the socket does not know it.

    Returns:
        Whether the worker is there to take it.
    """
    facts = json.dumps({"client": client}).encode() + b"\n"
    message = facts + head
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.settimeout(_PATIENCE_S)
        try:
            way.connect(address_of(family, worker))
            sent = socket.send_fds(way, [message], [fd])
            way.sendall(message[sent:])
        except OSError as error:
            logger.warning("Worker %d does not take a connection: %s", worker, error)
            return False
    return True


async def take_sockets(listening: socket.socket, take: Callable[[HandedOver], Awaitable[None]]) -> None:
    """Take what the siblings hand over, until cancelled.

    Args:
        listening: See `listen`.
        take: Called with each socket, which is then its own.
    """
    async with anyio.create_task_group() as tasks:
        while True:
            await anyio.wait_readable(listening)
            with contextlib.suppress(BlockingIOError):
                way, _ = listening.accept()
                tasks.start_soon(_take_one, way, take)


async def _take_one(way: socket.socket, take: Callable[[HandedOver], Awaitable[None]]) -> None:
    with way:
        way.setblocking(False)
        if not _is_ours(way):
            return
        try:
            handed = await _read(way)
        except OSError as error:
            logger.warning("A connection that another worker handed over was lost: %s", error)
            return
    if handed is not None:
        try:
            await take(handed)
        except OSError as error:
            handed.socket.close()
            logger.info("A client was gone before its connection was handed over: %s", error)


async def _read(way: socket.socket) -> HandedOver | None:
    message, fds = b"", list[int]()
    try:
        while True:
            await anyio.wait_readable(way)
            data, more, _, _ = socket.recv_fds(way, _CHUNK, 1)
            fds += more
            if not data:
                break
            message += data
        if not fds:
            return None
        facts, _, head = message.partition(b"\n")
        client = json.loads(facts)["client"]
        handed = HandedOver(socket.socket(fileno=fds[0]), head, None if client is None else tuple(client))
        fds.clear()
    finally:
        for fd in fds:
            os.close(fd)
    handed.socket.setblocking(False)
    return handed


def _is_ours(way: socket.socket) -> bool:
    """Whether the peer is a process of the same user: an abstract address has no permissions of its own."""
    if not sys.platform.startswith("linux"):
        return True
    _, user, _ = _PEER.unpack(way.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return user == os.geteuid()
