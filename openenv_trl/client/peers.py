"""Which wire a server speaks, and the connections that sessions on it share.

A client offers the native wire with its first socket. A server that takes it gets all of this event loop's sessions
on one connection; at one that does not, the socket just opened becomes that client's own session of the OpenEnv wire.
While nobody knows yet, the clients of a server wait for the first one's answer.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import anyio

from openenv_trl.client.address import ServerAddress, with_query
from openenv_trl.client.connection import Connection
from openenv_trl.client.message_socket import MessageSocket, SocketSettings
from openenv_trl.client.native_connection import NativeConnection
from openenv_trl.client.native_session import NativeLink
from openenv_trl.client.transport import AwaitedSocket, Socket, open_message_socket
from openenv_trl.errors import ConfigurationError, ConnectionFailedError
from openenv_trl.wire import native_frames as frames
from openenv_trl.wire.frames import WAIT_HEADER

_FAREWELL_S = 0.5  # for the thread of blocking clients, when the process ends

Wire = Literal["auto", "openenv", "native"]
Link = Connection | NativeLink


@dataclass(frozen=True)
class LinkSettings:
    """How a client's session is opened and called.

    Attributes:
        socket: How sockets are opened and kept.
        message_timeout_s: Seconds for a reply, where a call says nothing else.
        wait_for_slot_s: Seconds to wait for a slot, where the server has none free.
        wire: "auto" for the native wire where the server speaks it.
    """

    socket: SocketSettings
    message_timeout_s: float
    wait_for_slot_s: float
    wire: Wire


async def choose_link(address: ServerAddress, settings: LinkSettings) -> Link:
    """Return a session to be opened, on whichever wire its server speaks.

    Args:
        address: The server.
        settings: How to open and call the session.

    Raises:
        ConnectionFailedError: No server answered at the address.
        ConfigurationError: The settings want the native wire, and the server does not speak it; or another that there
            is not.
    """
    if settings.wire not in get_args(Wire):
        raise ConfigurationError(f'wire={settings.wire!r} is unknown: it must be "auto", "openenv" or "native".')
    own, timeout_s, wait_s = _with_wait(settings), settings.message_timeout_s, settings.wait_for_slot_s
    if settings.wire == "openenv":
        return Connection(address, own, timeout_s, wait_for_slot_s=wait_s)
    peer = _peer(address, settings.socket)
    reached = await peer.reach(own)
    if isinstance(reached, NativeConnection):
        return NativeLink(peer.native, address.base_url, timeout_s, wait_s)
    if settings.wire == "native":
        reached.abort()
        raise ConfigurationError(
            f'{address.base_url} does not speak the native wire: leave wire="auto", or serve the environment with '
            "openenv_trl."
        )
    return Connection(address, own, timeout_s, reached, wait_for_slot_s=wait_s)


class _Peer:
    """One server, as one event loop's clients with the same settings reach it.

    A server of several processes gets a connection to each: its sessions are spread over them.
    """

    def __init__(self, address: ServerAddress, settings: SocketSettings) -> None:
        self._address = address
        self._settings = settings
        self._natives: list[NativeConnection] = []
        self._speaks_openenv = False
        self._opening = asyncio.Lock()

    async def reach(self, settings: SocketSettings) -> NativeConnection | Socket:
        """Return a shared connection; or, of a server without the native wire, a socket of the caller's own."""
        if self._natives and not self._missing_workers():
            return self._emptiest()
        if self._speaks_openenv:
            return await self._open(settings)
        async with self._opening:
            if not self._natives:
                return await self._open(settings)
            for worker in self._missing_workers():
                try:
                    await self._open(self._settings, worker)
                except ConnectionFailedError:
                    if not self._natives:
                        raise
                    break  # that process is not there now; the others are
            if self._natives:
                return self._emptiest()
        return await self.reach(settings)

    async def native(self) -> NativeConnection:
        """Return a shared connection of a server that speaks the native wire."""
        reached = await self.reach(self._settings)
        if isinstance(reached, NativeConnection):
            return reached
        reached.abort()
        text = f"{self._address.base_url} does not speak the native wire any more."
        raise ConnectionFailedError(text, phase="connect")

    def _emptiest(self) -> NativeConnection:
        return min(self._natives, key=lambda native: native.sessions)

    def _missing_workers(self) -> list[int]:
        workers = self._natives[0].workers
        if len(self._natives) >= workers:
            return []
        reached = {native.worker for native in self._natives}
        return [worker for worker in range(workers) if worker not in reached]

    async def _open(self, settings: SocketSettings, worker: int | None = None) -> NativeConnection | Socket:
        awaited = AwaitedSocket()
        offering = replace(settings, subprotocols=(frames.SUBPROTOCOL,))
        socket = await open_message_socket(self._address_of(worker), offering, awaited.take, awaited.end)
        awaited.carry(socket)
        if socket.subprotocol != frames.SUBPROTOCOL:
            self._speaks_openenv = True
            return awaited
        self._speaks_openenv = False
        native = NativeConnection(self._address.base_url, self._settings, self._reopen, self._over)
        self._natives.append(native)
        native.adopt(socket, *awaited.hand_over())
        with anyio.move_on_after(settings.connect_timeout_s):
            await native.greeted()
        return native  # which may have ended already

    async def _reopen(
        self, on_message: Callable[[bytes, bool], None], on_closed: Callable[[str], None], worker: int | None
    ) -> MessageSocket:
        offering = replace(self._settings, subprotocols=(frames.SUBPROTOCOL,))
        return await open_message_socket(self._address_of(worker), offering, on_message, on_closed)

    def _address_of(self, worker: int | None) -> ServerAddress:
        return self._address if worker is None else with_query(self._address, "worker", str(worker))

    def farewell(self) -> None:
        """The event loop is gone, or the process goes: leave nothing open on the server."""
        for native in self._natives:
            native.farewell()

    def _over(self, connection: NativeConnection) -> None:
        if connection in self._natives:
            self._natives.remove(connection)


_peers: dict[asyncio.AbstractEventLoop, dict[Any, _Peer]] = {}


def _leave(loops: Iterable[asyncio.AbstractEventLoop]) -> None:
    for loop in loops:
        peers = list(_peers.pop(loop).values())
        if not loop.is_running():
            _bid_farewell(peers)
            continue
        done = threading.Event()  # the loop of blocking clients, in a thread of its own
        loop.call_soon_threadsafe(_bid_farewell, peers, done)
        done.wait(_FAREWELL_S)


def _bid_farewell(peers: list[_Peer], done: threading.Event | None = None) -> None:
    for peer in peers:
        peer.farewell()
    if done is not None:
        done.set()


# A connection that outlived its loop is let go while Python is still whole: the end of its socket wants to warn.
atexit.register(lambda: _leave(list(_peers)))


def _peer(address: ServerAddress, settings: SocketSettings) -> _Peer:
    loop = asyncio.get_running_loop()
    known = _peers.get(loop)
    if known is None:
        _leave([each for each in _peers if each.is_closed()])
        known = _peers[loop] = {}
    headers = tuple(sorted((settings.headers or {}).items()))
    key = (address.websocket_url, headers, replace(settings, headers=None))
    peer = known.get(key)
    if peer is None:
        peer = known[key] = _Peer(address, settings)
    return peer


def _with_wait(settings: LinkSettings) -> SocketSettings:
    if settings.wait_for_slot_s <= 0:
        return settings.socket
    headers = {**(settings.socket.headers or {}), WAIT_HEADER: f"{settings.wait_for_slot_s:g}"}
    return replace(settings.socket, headers=headers)
