"""uvicorn's HTTP protocol with an end to what a peer may hold back or heap up before it has asked anything.

uvicorn waits for a request's head for ever, and takes one of any length; so a peer that sends a byte now and then, or
headers without end, costs a connection and memory for as long as it likes. Here a head has a time and a length, and a
body may not stand still.

Source of the answers: RFC 9110 (408), RFC 6585 (431).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
"""The longest head of a request, with its target: several times what common servers take."""
HEAD_TIMEOUT_S = 10.0
"""Where the application has no settings of its own."""

_ALONGSIDE_BYTES = 256 * 1024  # what one read may bring of the request before, or of a body behind the head


class GuardedHttpProtocol(HttpToolsProtocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None
    _timeout_s = HEAD_TIMEOUT_S
    _in_body = False
    _upgraded = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A peer is there: its first request has to come."""
        super().connection_made(transport)
        settings = getattr(getattr(self.config.app, "state", None), "settings", None)
        self._timeout_s = getattr(settings, "head_timeout_s", HEAD_TIMEOUT_S)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a head or a body came."""
        if self._in_body:
            self._watch()  # it goes on
        else:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES + _ALONGSIDE_BYTES:
                self._refuse(b"431 Request Header Fields Too Large", b"The request's head is too long.")
                return
        super().data_received(data)
        if self._timer is None and self._answered() and not self._upgraded:
            self._watch()  # empty lines before a request end uvicorn's own wait

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self._timer is None:
            self._watch()

    def on_headers_complete(self) -> None:
        """The head is there; its body may follow."""
        super().on_headers_complete()
        self._in_body = True
        self._head_bytes = 0
        parser: Any = self.parser
        self._upgraded = bool(parser.should_upgrade()) and self._should_upgrade()
        if self._upgraded:
            self._rest()
        else:
            self._watch()

    def on_message_complete(self) -> None:
        """The request is there."""
        self._in_body = False
        self._rest()
        super().on_message_complete()

    def _answered(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete

    def _watch(self) -> None:
        self._rest()
        if not self.transport.is_closing():
            self._timer = self.loop.call_later(self._timeout_s, self._too_late)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self._in_body and self.flow.read_paused:
            self._watch()  # it is the application that takes its time
        elif self._in_body or self._head_bytes:
            self._refuse(b"408 Request Timeout", b"The request did not come in time.")
        else:
            self.transport.close()

    def _refuse(self, status: bytes, text: bytes) -> None:
        self._rest()
        if not self.cycle.response_started if self._in_body else self._answered():
            head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, len(text)) + text)
        self.transport.close()
