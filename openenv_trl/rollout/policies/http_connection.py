"""HTTP/1.1 for many requests at once: keep-alive connections of one request each at a time, parsed in C.

General clients spend more time on a request than a small model on its answer when hundreds are under way (see
``docs/policies.md`` for figures). What inference servers need of HTTP is little: POST JSON, GET, keep-alive, TLS.
Redirects are not followed, compression is not asked for; where a proxy stands between, see `proxied`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import SplitResult

import anyio
import anyio.abc

from openenv_trl.rollout.policies.settings import EndpointSettings


class ConnectionTrouble(Exception):
    """No connection could be made, or it ended before the answer was whole."""


@dataclass(frozen=True)
class HttpAnswer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes


class Exchange(Protocol):
    """Sends a request and brings the answer back."""

    async def request(
        self, method: str, url: SplitResult, path: str, headers: dict[str, str], body: bytes
    ) -> HttpAnswer:
        """One exchange.

        Raises:
            ConnectionTrouble: There was no whole answer.
            TimeoutError: The connection was not opened in time.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


class DirectExchange:
    """Connections straight to the servers."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._idle: dict[tuple[str, str], list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def request(
        self, method: str, url: SplitResult, path: str, headers: dict[str, str], body: bytes
    ) -> HttpAnswer:
        """One exchange, on an idle connection where there is one."""
        key = (url.scheme, url.netloc)
        head = [f"{method} {url.path.rstrip('/')}{path} HTTP/1.1", f"host: {url.netloc}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        head += [f"content-length: {len(body)}", "", ""]
        data = "\r\n".join(head).encode("latin-1") + body
        while (connection := await self._idle_connection(key)) is not None:
            try:
                return await self._exchange(key, connection, data)
            except ConnectionTrouble:
                if connection.answer_begun:
                    raise
                # The server closed it while it was idle: that says nothing about the server.
        return await self._exchange(key, await self._open(url), data)

    async def aclose(self) -> None:
        """Close the idle connections."""
        idle = [connection for connections in self._idle.values() for connection in connections]
        self._idle.clear()
        for connection in idle:
            await anyio.aclose_forcefully(connection.stream)

    async def _idle_connection(self, key: tuple[str, str]) -> _Connection | None:
        connections = self._idle.get(key)
        if not connections:
            return None
        oldest = anyio.current_time() - self._settings.keepalive_s
        if connections[-1].idle_since >= oldest:
            return connections.pop()
        del self._idle[key]  # the last one in is the youngest: all of them have been idle for too long
        for connection in connections:
            await anyio.aclose_forcefully(connection.stream)
        return None

    async def _open(self, url: SplitResult) -> _Connection:
        secure = url.scheme == "https"
        if secure and self._tls is None:
            self._tls = ssl.create_default_context()
            if not self._settings.verify_tls:
                self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        host, port = url.hostname or "", url.port or (443 if secure else 80)
        try:
            with anyio.fail_after(self._settings.connect_timeout_s):
                if secure:
                    stream = await anyio.connect_tcp(
                        host, port, tls=True, ssl_context=self._tls, tls_standard_compatible=False
                    )
                else:
                    stream = await anyio.connect_tcp(host, port)
        except (OSError, ssl.SSLError) as error:
            if isinstance(error, TimeoutError):
                raise ConnectionTrouble(
                    f"no connection within connect_timeout_s={self._settings.connect_timeout_s:g}"
                ) from error
            raise ConnectionTrouble(str(error) or type(error).__name__) from error
        return _Connection(stream)

    async def _exchange(self, key: tuple[str, str], connection: _Connection, data: bytes) -> HttpAnswer:
        kept = False
        try:
            answer = await connection.exchange(data)
            kept = connection.reusable
        finally:
            if not kept:
                with anyio.CancelScope(shield=True):
                    await anyio.aclose_forcefully(connection.stream)
        if kept:
            connection.idle_since = anyio.current_time()
            self._idle.setdefault(key, []).append(connection)
        return answer


@dataclass
class _Connection:
    """One connection, for one exchange at a time."""

    stream: anyio.abc.ByteStream
    idle_since: float = 0.0
    reusable: bool = False
    answer_begun: bool = False
    _headers: dict[str, str] = field(default_factory=dict[str, str])
    _parts: list[bytes] = field(default_factory=list[bytes])
    _whole: bool = False
    _parser: Any = None

    async def exchange(self, data: bytes) -> HttpAnswer:
        import httptools

        self._headers, self._parts, self._whole = {}, [], False
        self.answer_begun = self.reusable = False
        self._parser = parser = httptools.HttpResponseParser(self)
        try:
            await self.stream.send(data)
            while not self._whole:
                received = await self.stream.receive()
                self.answer_begun = True
                parser.feed_data(received)
        except anyio.EndOfStream as error:
            if not self._ends_with_the_connection():
                raise ConnectionTrouble("the server closed the connection without a whole answer") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise ConnectionTrouble(f"the connection broke: {error.__cause__ or error!r}") from error
        except httptools.HttpParserError as error:
            raise ConnectionTrouble(f"the answer is not HTTP: {error}") from error
        return HttpAnswer(int(parser.get_status_code()), self._headers, b"".join(self._parts))

    def _ends_with_the_connection(self) -> bool:
        headers = self._headers
        framed = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "")
        return self.answer_begun and bool(headers) and not framed

    # What the parser calls:

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._whole = True
        self.reusable = bool(self._parser.should_keep_alive())  # the parser knows it only here
