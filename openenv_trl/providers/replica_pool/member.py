"""What a pool knows of each of its servers, and of each provider that starts some. No clock, socket or task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from openenv_trl.errors import OpenEnvError, ServerStartError
from openenv_trl.providers.pool_server import BackOff


class MemberState(Enum):
    """What a server does."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """It gets no new sessions, and is removed when the last one is over."""
    REMOVING = "removing"
    """Its provider removes it: it was idle, or is dead."""
    AWAY = "away"
    """It was given by its address, and does not answer."""


@dataclass
class Member:
    """One server."""

    number: int
    source: int | None
    """Which provider started it; None where it was given by its address."""
    state: MemberState
    url: str = ""
    since: float = 0.0
    """When its start began; from then on when it was ready."""
    aged: bool = False
    """Whether it drains because of its age: it is not taken back then."""
    yielded: bool = False
    """Whether it was given up for another pool."""
    probing: bool = False
    probe_at: float = 0.0
    probed_at: float = float("-inf")
    failures: int = 0
    """Health checks in a row that failed."""
    last_failure: str = ""
    starts_failed_before: int = 0
    """Starts in a row that had failed before this one."""


@dataclass
class Source:
    """One provider."""

    back_off: BackOff
    limit: int
    """Starts in a row that may fail before callers are told."""
    failures: int = 0
    """Starts in a row that failed."""
    has_started: bool = False
    """Whether a start of it ever brought a replica."""
    retry_at: float = float("-inf")
    failed_at: float = float("-inf")
    error: OpenEnvError | None = None
    """What the last start failed with."""

    def note_failure(self, error: BaseException, failures: int, now: float, chance: float) -> None:
        """A start failed, or what it brought died soon.

        Args:
            error: Why.
            failures: How many in a row it is.
            now: The time.
            chance: From 0 to 1: spreads the pause.
        """
        self.failures, self.failed_at = failures, now
        self.error = error if isinstance(error, OpenEnvError) else _as_start_error(error)
        self.retry_at = now + self.back_off.pause_s(failures, chance)

    def given_up(self, now: float) -> bool:
        """Whether callers are not to wait for it."""
        return self.failures >= self.limit and now < self.retry_at


def _as_start_error(error: BaseException) -> ServerStartError:
    # A provider may be anyone's code.
    started = ServerStartError(f"A replica could not be started: {type(error).__name__}: {error}")
    started.__cause__ = error
    return started
