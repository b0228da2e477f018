"""A WebSocket as the server's dialogues see it, whichever library carries it.

A `Consumer` is one peer's dialogue; a `Channel` is its way out. Both are used on the event loop only. Messages come
whole and in order; a channel that is closed drops what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def pause_reading(self) -> None:
        """Take no further messages from the peer for now: its sending stalls."""
        ...

    def resume_reading(self) -> None:
        """Take messages again."""
        ...


class Consumer(Protocol):
    """One peer's dialogue. No method but `run` may block or raise."""

    def opened(self, channel: Channel) -> None:
        """The socket is open. The first call."""
        ...

    async def run(self) -> None:
        """Hold the dialogue, in a task that begins after `opened`. The socket is closed when it returns."""
        ...

    def received(self, message: str | bytes) -> None:
        """A whole message came: text as str, binary as bytes."""
        ...

    def writing_paused(self) -> None:
        """The peer reads more slowly than is sent to it: stop producing."""
        ...

    def writing_resumed(self) -> None:
        """The peer has caught up."""
        ...

    def closed(self, code: int) -> None:
        """The socket is gone, whoever closed it. The last call; `run` should return soon.

        Args:
            code: The code that it was closed with; 1006 where it broke.
        """
        ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """A dialogue for a peer.

    Attributes:
        consumer: The dialogue.
        subprotocol: Which of the peer's it speaks, or None.
    """

    consumer: Consumer
    subprotocol: str | None = None


Door = Callable[[Handshake], Accepted]
"""Opens a dialogue for whoever asks at one path."""


class Gate:
    """A door in a wall of back-pressure: open, or shut until the other side has caught up.

    Waiting costs nothing while it is open.
    """

    __slots__ = ("_opened", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._opened: list[Callable[[], None]] = []

    def shut(self) -> None:
        """Make those who come wait."""
        self.is_open = False

    def open(self) -> None:
        """Let all through."""
        self.is_open = True
        waiting, self._opened = self._opened, []
        for wake in waiting:
            wake()

    def when_open(self, wake: Callable[[], None]) -> None:
        """Call the function once, when the gate opens: at once if it is open."""
        if self.is_open:
            wake()
        else:
            self._opened.append(wake)
