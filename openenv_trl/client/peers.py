"""Which wire a server speaks, and the connections that sessions on it share.

A client offers the native wire with its first socket. A server that takes it gets all of this event loop's sessions
on one connection; at one that does not, the socket just opened becomes that client's own session of the OpenEnv wire.
While nobody knows yet, the clients of a server wait for the first one's answer.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from openenv_trl.client.address import ServerAddress, with_query
from openenv_trl.client.connection import Connection
from openenv_trl.client.message_socket import MessageSocket, SocketSettings
from openenv_trl.client.native_connection import NativeConnection
from openenv_trl.client.native_session import NativeLink
from openenv_trl.client.session import ClientState
from openenv_trl.client.transport import AwaitedSocket, Socket, open_message_socket
from openenv_trl.errors import ConfigurationError, ConnectionFailedError
from openenv_trl.wire import native_frames as frames
from openenv_trl.wire.frames import WAIT_HEADER, Reply, RequestType

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


class ChosenLink:
    """A client's session, on whichever wire its server speaks. The same face as the two links have.

    Args:
        address: The server.
        settings: How to open and call it.
    """

    __slots__ = ("_address", "_choosing", "_link", "_settings")

    def __init__(self, address: ServerAddress, settings: LinkSettings) -> None:
        self._address = address
        self._settings = settings
        self._link: Link | None = None
        self._choosing: asyncio.Lock | None = None

    @property
    def state(self) -> ClientState:
        """Where the session stands."""
        return self._link.state if self._link is not None else ClientState.NEW

    @property
    def is_open(self) -> bool:
        """Whether a call could be sent now."""
        return self._link is not None and self._link.is_open

    @property
    def wire(self) -> str | None:
        """Which wire the session is on; None before it was opened."""
        if self._link is None:
            return None
        return "native" if isinstance(self._link, NativeLink) else "openenv"

    @property
    def session_id(self) -> str | None:
        """The session's name on the server, where the wire tells it."""
        return self._link.session_id if isinstance(self._link, NativeLink) else None

    async def open(self) -> None:
        """Open the session; nothing where it is open. See `EnvClient.connect`."""
        link = self._link or await self._choose()
        try:
            await link.open()
        finally:
            if link.state is ClientState.NEW:
                self._link = None  # the next try asks again which wire it is

    async def call(
        self, phase: str, kind: RequestType, data: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Reply:
        """Send a request and return its reply, opening the session first where that was not done yet."""
        link = self._link
        if link is None:
            await self.open()
            link = self._link
            assert link is not None, "an opened session has a link"
        return await link.call(phase, kind, data, timeout_s)

    async def close(self) -> None:
        """End the session. See `EnvClient.close`."""
        if self._link is None:
            self._link = Connection(self._address, self._settings.socket, self._settings.message_timeout_s)
        await self._link.close()

    async def _choose(self) -> Link:
        if self._choosing is None:
            self._choosing = asyncio.Lock()
        async with self._choosing:
            if self._link is None:
                self._link = await self._chosen()
            return self._link

    async def _chosen(self) -> Link:
        settings = self._settings
        if settings.wire == "openenv":
            return Connection(self._address, _with_wait(settings), settings.message_timeout_s)
        peer = _peer(self._address, settings.socket)
        reached = await peer.reach(_with_wait(settings))
        if isinstance(reached, NativeConnection):
            return NativeLink(peer.native, self._address.base_url, settings.message_timeout_s, settings.wait_for_slot_s)
        if settings.wire == "native":
            reached.abort()
            raise ConfigurationError(
                f'{self._address.base_url} does not speak the native wire: leave wire="auto", or serve the environment '
                "with openenv_trl."
            )
        return Connection(self._address, _with_wait(settings), settings.message_timeout_s, reached)


class _Peer:
    """One server, as one event loop's clients with the same settings reach it."""

    def __init__(self, address: ServerAddress, settings: SocketSettings) -> None:
        self._address = address
        self._settings = settings
        self._native: NativeConnection | None = None
        self._speaks_openenv = False
        self._first = asyncio.Lock()

    async def reach(self, settings: SocketSettings) -> NativeConnection | Socket:
        """Return the shared connection; or, of a server without the native wire, a socket of the caller's own."""
        if self._native is None and not self._speaks_openenv:
            async with self._first:
                if self._native is None and not self._speaks_openenv:
                    return await self._open(settings)
        return self._native or await self._open(settings)

    async def native(self) -> NativeConnection:
        """Return the shared connection of a server that speaks the native wire."""
        reached = await self.reach(self._settings)
        if isinstance(reached, NativeConnection):
            return reached
        reached.abort()
        raise ConnectionFailedError(
            f"{self._address.base_url} does not speak the native wire any more.", phase="connect"
        )

    async def _open(self, settings: SocketSettings) -> NativeConnection | Socket:
        awaited = AwaitedSocket()
        offering = replace(settings, subprotocols=(frames.SUBPROTOCOL,))
        socket = await open_message_socket(self._address, offering, awaited.take, awaited.end)
        awaited.carry(socket)
        if socket.subprotocol != frames.SUBPROTOCOL:
            self._speaks_openenv = True
            return awaited
        self._speaks_openenv = False
        if self._native is None:
            self._native = NativeConnection(self._address.base_url, self._settings, self._reopen, self._over)
            self._native.adopt(socket, *awaited.hand_over())
        else:
            socket.abandon()
        return self._native

    async def _reopen(
        self, on_message: Callable[[bytes, bool], None], on_closed: Callable[[str], None], worker: Any
    ) -> MessageSocket:
        address = self._address if worker is None else with_query(self._address, "worker", str(worker))
        offering = replace(self._settings, subprotocols=(frames.SUBPROTOCOL,))
        return await open_message_socket(address, offering, on_message, on_closed)

    def _over(self, connection: NativeConnection) -> None:
        if self._native is connection:
            self._native = None


_peers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, _Peer]] = weakref.WeakKeyDictionary()


def _peer(address: ServerAddress, settings: SocketSettings) -> _Peer:
    known = _peers.setdefault(asyncio.get_running_loop(), {})
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
