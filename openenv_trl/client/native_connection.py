"""One connection of the native wire, shared by the sessions of one process on one server.

Promises: each reply reaches the call that it answers, in whatever order replies come; one that fits no open call is
dropped and counted; a connection that breaks is made again, and its sessions and their open calls with it, each call
carried out at most once. What the server itself ends is not made again.

The pure part of a call is `native_session.NativeLink`; this is the socket's shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio

from openenv_trl._version import __version__
from openenv_trl.chance import CHANCE
from openenv_trl.client.message_socket import MessageSocket, SocketClosed, SocketSettings
from openenv_trl.errors import ConfigurationError, ConnectionFailedError, ProtocolError
from openenv_trl.wire import native_frames as frames

if TYPE_CHECKING:
    from openenv_trl.client.native_session import NativeLink


_FIRST_PAUSE_S = 0.05  # between two tries to reach the server again; then twice as long each time
_LONGEST_PAUSE_S = 1.0
_BROKE = "the connection broke"
_MENDED = (_BROKE, "the server did not answer pings")  # all else is the server's own will


class NativeConnection:
    """A socket and the sessions on it.

    Args:
        url: The server's address, for messages.
        settings: How the socket was opened.
        reopen: Opens another socket to the same server: ``await reopen(on_message, on_closed, worker)``.
        over: Called once, when the connection has ended for good or is not to be used for new sessions.
    """

    def __init__(
        self,
        url: str,
        settings: SocketSettings,
        reopen: Callable[[Callable[[bytes, bool], None], Callable[[str], None], int | None], Awaitable[MessageSocket]],
        over: Callable[[NativeConnection], None],
    ) -> None:
        self.url = url
        self.late_replies = 0
        """Replies that fitted no open call."""
        self.resumed = 0
        """Times that the connection was made again."""
        self._settings = settings
        self._reopen = reopen
        self._over = over
        self._socket: MessageSocket | None = None
        self._server_bytes: int | None = None
        self._resume_s = 0.0
        self._greeted = anyio.Event()
        self.worker: int | None = None
        """Which of the server's processes it leads to; None where there is only one, or it has not said so yet."""
        self.workers = 1
        """How many processes the server has."""
        self._links: dict[int, NativeLink] = {}
        self._next_number = 0
        self._out: list[bytes] = []
        self._flush_comes = False
        self._ended = False
        self._how = "it was closed"
        self._closing = False
        self._gone = anyio.Event()
        self._repair: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        """Where its socket lives."""

    @property
    def is_usable(self) -> bool:
        """Whether new sessions may be opened on it."""
        return not self._ended and not self._closing

    @property
    def is_open(self) -> bool:
        """Whether its socket is open, or being made again."""
        return not self._ended and self._socket is not None and (self._socket.is_open or self._repair is not None)

    @property
    def sessions(self) -> int:
        """How many sessions it holds."""
        return len(self._links)

    def adopt(self, socket: MessageSocket, earlier: list[bytes], ended: str | None) -> None:
        """Begin on a socket that speaks the native wire, with what came on it already, and its end if it has ended."""
        socket.on_message, socket.on_closed = self._received, self._closed
        self._socket = socket
        self._send_now(frames.encode_greeting(self._settings.max_message_bytes, software=f"openenv-trl/{__version__}"))
        for message in earlier:
            self._received(message, False)
        if ended is not None:
            self._closed(ended)

    async def greeted(self) -> None:
        """Wait until the server has said what it is, or the connection has ended."""
        await self._greeted.wait()

    def join(self, link: NativeLink) -> int:
        """Give a session its number.

        Raises:
            ConnectionFailedError: The connection has ended.
        """
        if self._ended:
            text = f"{self.url} accepted the connection, but opened no session: {self._how.rstrip('.')}."
            raise ConnectionFailedError(text, phase="connect")
        self._next_number += 1
        self._links[self._next_number] = link
        return self._next_number

    async def leave(self, number: int) -> None:
        """A session is over. The last one closes the connection."""
        self._links.pop(number, None)
        if self._links or self._ended or self._closing:
            return
        self._closing = True
        self._over(self)
        if self._repair is not None:
            self._repair.cancel()
        if self._socket is not None and self._socket.is_open:
            self._flush()
            self._socket.close()
            await self._gone.wait()

    def farewell(self) -> None:
        """See `MessageSocket.farewell`: the server then ends the sessions at once, and waits for nobody."""
        if self._socket is not None:
            self._socket.farewell()

    def forget(self, number: int) -> None:
        """A session is over without a word to the server. The last one closes the connection."""
        self._links.pop(number, None)
        if self._repair is None:
            self._close_unless_used()

    def _close_unless_used(self) -> None:
        if not self._links and self.is_usable:
            self._closing = True
            self._over(self)
            if self._socket is not None:
                self._flush()
                self._socket.close()

    def longest_frame(self) -> int:
        """Bytes that a request may have."""
        limit = self._settings.max_message_bytes
        if self._server_bytes is not None:
            limit = min(limit, self._server_bytes)
        return limit - frames.HEADER_BYTES

    def put(self, frame: bytes) -> None:
        """Send a frame, together with others of the same moment."""
        if len(self._links) == 1:
            self._send_now(frame)  # there are no others
            return
        self._out.append(frame)
        if len(self._out) >= frames.JOINED_FRAMES:
            self._send_out()  # the server has something to do while the others are made
        elif not self._flush_comes:
            self._flush_comes = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_comes = False
        self._send_out()

    def _send_out(self) -> None:
        out, self._out = self._out, []
        if out:
            self._send_now(*out)

    def _send_now(self, *out: bytes) -> None:
        socket = self._socket
        if socket is None or self._repair is not None:
            return  # what was not answered is sent again when the connection is there again
        try:
            for message in frames.join(out):
                socket.send(message, text=False)
        except SocketClosed:
            pass  # `_closed` says what follows

    def _received(self, message: bytes, text: bool) -> None:
        try:
            if text:
                raise ProtocolError("the server sent a text message on the native wire")
            for frame in frames.parse_message(message):
                self._take(frame)
        except ProtocolError as error:
            self._end(f"its server broke the native wire: {error}")
            if self._socket is not None:
                self._socket.abort()

    def _take(self, frame: Any) -> None:
        if self._server_bytes is None:
            greeting = frames.parse_greeting(frame)
            if greeting is None:
                raise ProtocolError("the server's first frame is no greeting")
            self._server_bytes = greeting.max_message_bytes
            resume_s = greeting.details.get("resume_s")
            self._resume_s = float(resume_s) if isinstance(resume_s, int | float) else 0.0
            worker, workers = greeting.details.get("worker"), greeting.details.get("workers")
            self.worker = worker if isinstance(worker, int) else None
            self.workers = workers if isinstance(workers, int) and self.worker is not None else 1
            self._greeted.set()
            return
        items = frames.check_reply(frame)
        link = self._links.get(items[1])
        if link is None or not link.take(items):
            self.late_replies += 1

    # ------------------------------------------------------------------ a broken connection

    def _closed(self, how: str) -> None:
        if self._ended or self._closing:
            self._ended = True
            self._greeted.set()
            self._gone.set()
        elif how in _MENDED and self._resume_s > 0 and self._links:
            # It belongs to no one call, and lives as long as the connection does: no task group could hold it.
            self._repair = self.loop.create_task(self._make_again())
        else:
            self._end(how)

    def _end(self, how: str) -> None:
        if self._ended:
            return
        self._ended, self._how = True, how
        self._greeted.set()
        self._over(self)
        for link in list(self._links.values()):
            link.lost(how)
        self._gone.set()

    async def _make_again(self) -> None:
        pause_s, refused = _FIRST_PAUSE_S, False
        with anyio.move_on_after(self._resume_s):
            while True:
                try:
                    await self._take_up()
                    return
                except (ConnectionFailedError, ConfigurationError) as error:
                    # Where nobody listens any more, the process that held the sessions is gone.
                    if refused and isinstance(error.__cause__, ConnectionRefusedError):
                        break
                    refused = isinstance(error.__cause__, ConnectionRefusedError)
                await anyio.sleep(pause_s * CHANCE.uniform(0.75, 1.25))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._repair = None
        self._end(f"{_BROKE}, and the server could not be reached again")

    async def _take_up(self) -> None:
        early: list[bytes] = []
        ended: list[str] = []
        socket = await self._reopen(lambda message, _text: early.append(message), ended.append, self.worker)
        if socket.subprotocol != frames.SUBPROTOCOL:
            socket.abandon()
            raise ConnectionFailedError(f"{self.url} does not speak the native wire any more.", phase="connect")
        self._server_bytes = None
        self._repair = None
        self._out.clear()
        self.resumed += 1
        self.adopt(socket, early, None)
        for link in list(self._links.values()):
            for frame in link.taking_up():
                self.put(frame)
        self._close_unless_used()  # its sessions may all have been given up meanwhile
        if ended:
            self._closed(ended[0])
