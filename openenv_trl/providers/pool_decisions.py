"""What a `PoolState` decides, and what it counts: plain data between the state and the pool that carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from openenv_trl.errors import OpenEnvError


@dataclass(frozen=True)
class Grant:
    """The caller gets the session."""

    ticket: int
    session: int
    url: str


@dataclass(frozen=True)
class Refuse:
    """The caller gets the error."""

    ticket: int
    error: OpenEnvError


@dataclass(frozen=True)
class Connect:
    """The caller is to open a session, and to report as ``connected``, ``refused``, ``failed`` or ``abandoned``."""

    ticket: int
    attempt: int
    url: str


@dataclass(frozen=True)
class Abandon:
    """The caller's attempt is not needed any more. How it ends is to be reported all the same."""

    ticket: int


@dataclass(frozen=True)
class Close:
    """The session is to be closed, and reported as ``closed``."""

    session: int


Decision = Grant | Refuse | Connect | Abandon | Close


@dataclass(frozen=True)
class Outlook:
    """What is known of servers that are not there yet, for a pool whose servers come and go."""

    more_come: bool = False
    """Whether more servers are on their way: callers wait for them, however long none answers."""
    text: str = ""
    """How things stand with them, for messages: ``2 replicas start``."""


@dataclass(frozen=True)
class PoolMetrics:
    """A pool's counters since it was made, and its present numbers."""

    opened: int
    """Sessions opened."""
    reused: int
    """Grants of a session that was open already."""
    refused: int
    """Connects that a server refused for lack of capacity."""
    failed: int
    """Connects that failed in another way."""
    closed: int
    """Sessions closed."""
    in_use: int
    idle: int
    connecting: int
    waiting: int
    """Callers that have no session yet."""
