"""A WebSocket as the server's dialogues see it, whichever library carries it.

A `Consumer` is one peer's dialogue; a `Channel` is its way out. Both are used on the event loop only. Messages come
whole and in order; a channel that is closed drops what is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a peer asked for when it opened the socket.

    Attributes:
        path: The path, without the query.
        query: The query's parameters; the last of a repeated one.
        headers: The headers, with names in lower case.
        subprotocols: What the peer offers to speak, best first.
        client: The peer's address, for the log.
    """

    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    subprotocols: tuple[str, ...] = ()
    client: str = ""


class Channel(Protocol):
    """The way to one peer."""

    @property
    def is_open(self) -> bool:
        """Whether what is sent now can still arrive."""
        ...

    def send(self, message: bytes, *, text: bool) -> None:
        """Send a message; it is kept until the peer takes it. See `Consumer.writing_paused`."""
        ...

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the socket after what was sent before."""
        ...

    def abort(self) -> None:
        """Close the socket at once, whatever was sent before."""
        ...

    def pause_reading(self) -> None:
        """Take no further messages from the peer for now: its sending stalls."""
        ...

    def resume_reading(self) -> None:
        """Take messages again."""
        ...


class Consumer(Protocol):
    """One peer's dialogue. No method but `run` may block or raise."""

    async def run(self) -> None:
        """Hold the dialogue, in a task that begins after `opened`. The socket is closed when it returns."""
        ...

    def opened(self, channel: Channel) -> None:
        """The socket is open."""
        ...

    def received(self, message: bytes, *, text: bool) -> None:
        """A whole message came."""
        ...

    def writing_paused(self) -> None:
        """The peer reads more slowly than is sent to it: stop producing."""
        ...

    def writing_resumed(self) -> None:
        """The peer has caught up."""
        ...

    def closed(self) -> None:
        """The socket is gone, whoever closed it. The last call."""
        ...

    def drain(self) -> None:
        """The server is going to stop: begin nothing new, and close when what runs is over."""
        ...
