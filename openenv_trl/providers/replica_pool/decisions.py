"""What a `ReplicaController` is told of the sessions, and what it decides: plain data between it and its pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openenv_trl.errors import OpenEnvError


@dataclass(frozen=True)
class ServerLoad:
    """The sessions of one server."""

    busy: int
    """Sessions that are lent, being opened or being closed."""
    allowed: int
    """Sessions that it holds at most, as far as is known."""
    failing: bool = False
    """Whether the last attempt to open a session there failed."""


@dataclass(frozen=True)
class Load:
    """How many callers there are, and where their sessions are."""

    demand: int = 0
    """Sessions that callers have or want."""
    waiting: int = 0
    """Callers that have none yet."""
    queued: int = 0
    """Callers that have none, and for whom none is being opened."""
    queued_since: float | None = None
    """Since when the first of these waits."""
    servers: Mapping[str, ServerLoad] = field(default_factory=dict[str, ServerLoad])
    """By address, also of those that were retired and still have sessions."""


@dataclass(frozen=True)
class StartReplica:
    """A provider is to start a replica; report ``started`` or ``start_failed``."""

    member: int
    source: int
    """Which of the providers."""


@dataclass(frozen=True)
class RemoveReplica:
    """The replica's provider is to remove it; report ``removed``, also where that failed."""

    member: int


@dataclass(frozen=True)
class Probe:
    """The server is to be asked for its health; report ``probed``."""

    member: int


@dataclass(frozen=True)
class Admit:
    """Sessions may be opened on the server from now on."""

    member: int
    url: str


@dataclass(frozen=True)
class Retire:
    """No more sessions are to be opened or lent there; those that are lent go on."""

    url: str


@dataclass(frozen=True)
class Drop:
    """The server is dead."""

    url: str
    why: str


@dataclass(frozen=True)
class FailWaiters:
    """No server is there and none can be started: everybody who waits is to get the error."""

    error: OpenEnvError


Decision = StartReplica | RemoveReplica | Probe | Admit | Retire | Drop | FailWaiters
