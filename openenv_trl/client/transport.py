"""The socket under a client, behind a seam: `Socket` is all that a client asks of it.

Source of the settings: the public package's client (message limit, pings, no proxy for loopback).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.protocol import State

from openenv_trl.client.address import ServerAddress
from openenv_trl.errors import ConfigurationError, ConnectionFailedError

_FOREVER_S = 1e9  # timers take no infinity
_READ_BYTES = 64 * 1024
_CLOSE_S = 2.0  # for the closing handshake of a socket that nobody reads any more


class SocketClosed(Exception):
    """The socket's end. The text says how it ended, as the last half of a sentence."""


class Socket(Protocol):
    """Text messages, in order, both ways."""

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it yet, as far as is known here."""
        ...

    async def send(self, text: bytes) -> None:
        """Send a text message, or raise `SocketClosed`."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next text message, also one that came before the socket closed; or raise `SocketClosed`."""
        ...

    async def close(self) -> None:
        """Close the socket in good order."""
        ...

    def abort(self) -> None:
        """Close the socket at once, without waiting for anything."""
        ...

    def abort_after(self, seconds: float) -> Deadline:
        """Close the socket at once when so many seconds have passed, unless the deadline is lifted before."""
        ...


class Deadline(Protocol):
    """A moment at which a socket is closed."""

    @property
    def passed(self) -> bool:
        """Whether it came."""
        ...

    def lift(self) -> None:
        """Let the socket live on."""
        ...


@dataclass(frozen=True)
class SocketSettings:
    """How a socket is opened and kept."""

    connect_timeout_s: float
    max_message_bytes: int
    ping_interval_s: float | None
    ping_timeout_s: float | None
    headers: Mapping[str, str] | None


async def open_socket(address: ServerAddress, settings: SocketSettings) -> Socket:
    """Open a socket to the server.

    Raises:
        ConnectionFailedError: Nothing answered, or what answered is no OpenEnv server; the text names the URL.
        ConfigurationError: The URL cannot be used.
    """
    url = address.websocket_url
    try:
        connection = await connect(
            url,
            additional_headers=settings.headers,
            compression=None,
            proxy=None if address.is_loopback else True,
            open_timeout=settings.connect_timeout_s,
            close_timeout=_CLOSE_S,
            ping_interval=settings.ping_interval_s,
            ping_timeout=settings.ping_timeout_s,
            max_size=settings.max_message_bytes,
        )
    except InvalidURI as error:
        raise ConfigurationError(f"{url} is not an address that can be connected to: {error}.") from error
    except InvalidStatus as error:
        if error.response.status_code == 401:
            raise ConnectionFailedError(
                f"{url} refused the connection with HTTP status 401: pass the headers that it asks for, such as "
                "headers={'Authorization': 'Bearer ...'}.",
                phase="connect",
            ) from error
        raise _refused(url, f"HTTP status {error.response.status_code}") from error
    except TimeoutError as error:
        raise ConnectionFailedError(
            f"No answer from {url} within {settings.connect_timeout_s:g} s. Check that the server is up, or give it "
            "longer with connect_timeout_s.",
            phase="connect",
        ) from error
    except OSError as error:
        raise ConnectionFailedError(
            f"Cannot connect to {url}: {error}. Check that the server is up, and its host and port.", phase="connect"
        ) from error
    except (InvalidHandshake, EOFError) as error:
        if isinstance(error, EOFError) or isinstance(error.__cause__, EOFError):
            raise ConnectionFailedError(
                f"{url} took the connection and closed it without an answer. Its process may have just ended, or have "
                "failed to start: its log tells why.",
                phase="connect",
            ) from error
        raise _refused(url, str(error) or type(error).__name__) from error
    return _WebSocket(connection)


def _refused(url: str, answer: str) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{url} answered, but not with a WebSocket ({answer}): there is no OpenEnv server at this address. Give the "
        "server's base URL, such as http://host:8000; its /health tells whether it is one.",
        phase="connect",
    )


class _WebSocket:
    """A socket of the websockets library."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        # asyncio's own loop allocates this much for each read. Its 256 KiB come from the system anew each time and go
        # back after it, which costs more than the rest of a small read; other loops have no such attribute.
        if hasattr(connection.transport, "max_size"):
            setattr(connection.transport, "max_size", _READ_BYTES)  # noqa: B010 - not in asyncio's type

    @property
    def is_open(self) -> bool:
        return self._connection.state is State.OPEN and not self._connection.transport.is_closing()

    async def send(self, text: bytes) -> None:
        try:
            await self._connection.send(text, text=True)
        except ConnectionClosed as error:
            raise SocketClosed(_how(error)) from error

    async def receive(self) -> str | bytes:
        try:
            return await self._connection.recv(decode=False)
        except ConnectionClosed as error:
            raise SocketClosed(_how(error)) from error

    async def close(self) -> None:
        await self._connection.close()

    def abort(self) -> None:
        self._connection.transport.abort()

    def abort_after(self, seconds: float) -> Deadline:
        return _AbortAfter(self._connection, seconds)


class _AbortAfter:
    """A deadline on asyncio's clock: a timer costs less than a cancel scope, and the socket would be closed anyway."""

    def __init__(self, connection: ClientConnection, seconds: float) -> None:
        self._connection = connection
        self.passed = False
        self._timer = asyncio.get_running_loop().call_later(min(seconds, _FOREVER_S), self._abort)

    def lift(self) -> None:
        self._timer.cancel()

    def _abort(self) -> None:
        self.passed = True
        self._connection.transport.abort()


def _how(error: ConnectionClosed) -> str:
    if error.rcvd is None and error.sent is None:
        return "the connection broke"
    if error.sent is not None and not error.rcvd_then_sent and error.sent.code == 1009:
        return f"the server sent a message longer than max_message_size_mb allows ({error.sent.reason})"
    if error.sent is not None and not error.rcvd_then_sent and error.sent.code == 1011:
        return "the server did not answer pings"
    if error.rcvd is None:
        return "the connection broke while it was closing"
    reasons = {1000: "the server closed it", 1001: "the server is going away", 1012: "the server is shutting down"}
    text = reasons.get(error.rcvd.code, f"the server closed it with code {error.rcvd.code}")
    return f"{text} ({error.rcvd.reason})" if error.rcvd.reason else text
