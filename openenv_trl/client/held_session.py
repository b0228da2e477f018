"""The one session that a client holds: opened when first needed, in its turn for a slot, and left only on purpose.

Promises: a session that was lost is not replaced; after one that was left, only `connect` or `reset` begins another; a
session is used on the event loop that it was opened on, and says so elsewhere; a server that was started for a session
which did not come about is stopped; where the session's own server has died, the next error says how.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import anyio

from openenv_trl.chance import CHANCE
from openenv_trl.client.address import ServerAddress, server_address
from openenv_trl.client.owned_server import OwnedServer
from openenv_trl.client.peers import Link
from openenv_trl.errors import ConnectionFailedError, SessionCapacityError, SessionLostError, SessionStateError
from openenv_trl.wire.frames import Reply, RequestType

T = TypeVar("T")

_FIRST_PAUSE_S = 0.05  # between two tries for a slot, at a server that cannot keep a client waiting
_LONGEST_PAUSE_S = 1.0


class HeldSession:
    """A client's session.

    Args:
        address: The server; None where it is yet to be started.
        new_link: Makes the way to the server, for a session that may wait so many seconds for its slot.
        wait_for_slot_s: Seconds to wait for a slot.
        owned: The server that is started and stopped with the session.
        served_by: The server of another session, which this one uses too.
    """

    def __init__(
        self,
        address: ServerAddress | None,
        new_link: Callable[[ServerAddress, float], Awaitable[Link]],
        *,
        wait_for_slot_s: float,
        owned: OwnedServer | None = None,
        served_by: OwnedServer | None = None,
    ) -> None:
        self.address = address
        """The server; None where it was not started yet."""
        self._new_link = new_link
        self._wait_for_slot_s = wait_for_slot_s
        self._owned = owned
        self._server = owned or served_by
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._ended: Literal["", "disconnected", "closed"] = ""

    @property
    def is_open(self) -> bool:
        """Whether the session takes calls."""
        return self._link is not None and self._link.is_open

    @property
    def link(self) -> Link | None:
        """The way to the server; None where the session is not open."""
        return self._link

    @property
    def server_headers(self) -> Mapping[str, str]:
        """The headers that the server's provider asks for."""
        return {} if self._server is None else self._server.headers

    def another(self) -> HeldSession:
        """Return one like this on the same server, which is not its own to stop."""
        return HeldSession(self.address, self._new_link, wait_for_slot_s=self._wait_for_slot_s, served_by=self._server)

    def call(
        self, phase: str, kind: RequestType, data: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Awaitable[Reply]:
        """Send a request and return its reply, opening the session first where that was not done yet."""
        link = self._link
        if link is None or self._server is not None or self._loop is not asyncio.get_running_loop():
            return self._open_and_call(phase, kind, data, timeout_s)
        return link.call(phase, kind, data, timeout_s)

    async def _open_and_call(
        self, phase: str, kind: RequestType, data: dict[str, Any] | None, timeout_s: float | None
    ) -> Reply:
        link = await self.opened(phase)
        return await self._telling_death(link.call(phase, kind, data, timeout_s))

    async def opened(self, phase: str) -> Link:
        """Return the way to the server, with the session open. See `EnvClient.connect`."""
        self._check_loop(phase)
        async with self._opening:
            self._check_ended(phase)
            link = self._link
            if link is not None:
                await self._telling_death(link.open())  # says so where it was lost
                return link
            self._loop = asyncio.get_running_loop()
            link = await self._open()
            if self._ended == "closed":  # meanwhile
                await link.close()
                self._check_ended(phase)
            self._link, self._ended = link, ""
            return link

    async def disconnect(self) -> None:
        """End the session; another may be opened."""
        link, self._link = self._link, None
        self._ended = self._ended or "disconnected"
        if link is not None:
            await link.close()

    async def close(self) -> None:
        """End the session for good, and the server where it is this session's own."""
        link, self._link = self._link, None
        self._ended = "closed"
        try:
            if link is not None:
                await link.close()
        finally:
            await self._stop_owned()

    async def _open(self) -> Link:
        if self.address is None:
            return await self._open_on_own_server()
        return await self._open_in_turn(self.address)

    async def _open_on_own_server(self) -> Link:
        assert self._owned is not None, "a session without an address has a server to start"
        self.address = server_address(await self._owned.start())
        try:
            return await self._telling_death(self._open_in_turn(self.address))
        except BaseException:
            self.address = None
            await self._stop_owned()  # `async with` closes no client that did not connect
            raise

    async def _telling_death(self, doing: Awaitable[T]) -> T:
        """Wait for it; to the error of a lost connection is added how the server died, where it did."""
        try:
            return await doing
        except (SessionLostError, ConnectionFailedError) as error:
            death = "" if self._server is None else await self._server.death()
            if not death:
                raise
            raise type(error)(f"{error}\n{death}", phase=error.phase, session_id=error.session_id) from error

    async def _open_in_turn(self, address: ServerAddress) -> Link:
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + self._wait_for_slot_s, _FIRST_PAUSE_S
        while True:
            link = await self._new_link(address, max(until - loop.time(), 0.0))
            try:
                await link.open()
                return link
            except SessionCapacityError as error:
                left_s = until - loop.time()
                if error.draining:
                    raise  # it will have none
                if left_s <= 0:
                    raise self._refusal(error) from error
            await anyio.sleep(min(left_s, pause_s * CHANCE.uniform(0.75, 1.25)))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _refusal(self, error: SessionCapacityError) -> SessionCapacityError:
        if self._wait_for_slot_s <= 0:
            advice = "Or let the client wait for its turn: wait_for_slot_s=60."
        else:
            advice = f"None became free within wait_for_slot_s={self._wait_for_slot_s:g} s."
        return SessionCapacityError(error.active_sessions, error.max_sessions, f"{error} {advice}")

    async def _stop_owned(self) -> None:
        if self._owned is not None:
            with anyio.CancelScope(shield=True):
                await self._owned.stop()

    def _check_ended(self, phase: str) -> None:
        if self._ended == "closed":
            advice = "the client is closed; make a new one"
        elif self._ended == "disconnected" and phase not in ("connect", "reset"):
            advice = "it was disconnected; call connect() or reset() to begin a new session"
        else:
            return
        raise SessionStateError(f"Cannot {phase} on {self._where()}: {advice}.", phase=phase)

    def _check_loop(self, phase: str) -> None:
        loop = self._loop
        if self._link is None or loop is None or loop is asyncio.get_running_loop():
            return
        if loop.is_closed():
            raise SessionLostError(
                f"Cannot {phase}: the session on {self._where()} ended with the event loop that it was opened on. Make "
                "all calls of a session under one asyncio.run, or use the blocking client, .sync().",
                phase=phase,
            )
        raise SessionStateError(
            f"Cannot {phase}: the session on {self._where()} was opened on another event loop (.sync() has one of its "
            "own). Use it only there, or make a client for each loop.",
            phase=phase,
        )

    def _where(self) -> str:
        return self.address.base_url if self.address else "a server that was not started"
