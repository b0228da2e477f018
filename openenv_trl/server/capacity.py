"""How many sessions a server holds at once: a ledger of slots, and the setting for it.

A slot is reserved before an environment is built and released once, after it was closed, so the number of live
environments never passes the limit. (An environment given up under a call that does not end gives its slot back
early: see `openenv_trl.server.session`.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from openenv_trl.errors import ConfigurationError, SessionCapacityError, SessionStateError


class ConcurrencyConfig(BaseModel):
    """How many sessions at once, and for how long."""

    model_config = ConfigDict(extra="forbid")

    max_concurrent_envs: int = Field(default=1, ge=1)
    """Sessions at once. One, because an environment class must first say that its instances share nothing."""
    session_timeout: float | None = Field(default=None, gt=0)
    """Seconds after which a session that no connection holds is ended; None for never. A session on an open socket is
    held by it, however long it is silent."""


class ServerCapacityStatus(BaseModel):
    """How full a server is."""

    model_config = ConfigDict(extra="forbid")

    active_sessions: int = Field(ge=0)
    max_sessions: int = Field(ge=1)

    @model_validator(mode="after")
    def _no_more_than_fit(self) -> ServerCapacityStatus:
        if self.active_sessions > self.max_sessions:
            raise ValueError(f"active_sessions={self.active_sessions} is more than max_sessions={self.max_sessions}")
        return self

    @classmethod
    def from_counts(cls, active: int, max_sessions: int) -> ServerCapacityStatus:
        """Return the status of so many sessions out of so many."""
        return cls(active_sessions=active, max_sessions=max_sessions)

    @property
    def available_slots(self) -> int:
        """Sessions that can still be opened."""
        return self.max_sessions - self.active_sessions

    @property
    def is_at_capacity(self) -> bool:
        """Whether the next session would be refused."""
        return self.available_slots <= 0


class SessionInfo(BaseModel):
    """One session that is open. Times are seconds since 1970."""

    model_config = ConfigDict(extra="forbid")

    session_id: str
    created_at: float
    last_activity_at: float
    step_count: int = Field(default=0, ge=0)
    environment_type: str
    """The environment class's name."""


class SlotLedger(Protocol):
    """Who holds the slots: of one process, or of several that share a limit."""

    @property
    def status(self) -> ServerCapacityStatus:
        """How full the server is."""
        ...

    def reserve(self, session_id: str) -> None:
        """Take a slot, at once.

        Raises:
            SessionCapacityError: All are taken.
            SessionStateError: This session has one already.
        """
        ...

    def release(self, session_id: str) -> None:
        """Give a slot back.

        Raises:
            SessionStateError: The session holds none: it never had one, or gave it back before.
        """
        ...

    def watch(self, slot_may_be_free: Callable[[], None]) -> None:
        """Have the function called, on the event loop, whenever a slot may have become free."""
        ...


class CapacityLedger:
    """The slots of one process, by session id."""

    def __init__(self, max_sessions: int) -> None:
        if max_sessions < 1:
            raise ConfigurationError(f"max_concurrent_envs={max_sessions}: a server needs room for one session.")
        self.max_sessions = max_sessions
        self._holders: set[str] = set()
        self._watchers: list[Callable[[], None]] = []

    @property
    def status(self) -> ServerCapacityStatus:
        """How full the server is."""
        return ServerCapacityStatus(active_sessions=len(self._holders), max_sessions=self.max_sessions)

    def reserve(self, session_id: str) -> None:
        """Take a slot.

        Raises:
            SessionCapacityError: All are taken.
            SessionStateError: This session has one already.
        """
        if session_id in self._holders:
            raise SessionStateError(f"Session {session_id} already holds a slot.", session_id=session_id)
        if len(self._holders) >= self.max_sessions:
            raise SessionCapacityError(len(self._holders), self.max_sessions)
        self._holders.add(session_id)

    def release(self, session_id: str) -> None:
        """Give a slot back.

        Raises:
            SessionStateError: The session holds none: it never had one, or gave it back before.
        """
        if session_id not in self._holders:
            raise SessionStateError(f"Session {session_id} holds no slot to release.", session_id=session_id)
        self._holders.remove(session_id)
        for slot_may_be_free in self._watchers:
            slot_may_be_free()

    def watch(self, slot_may_be_free: Callable[[], None]) -> None:
        """Have the function called whenever a slot has become free."""
        self._watchers.append(slot_may_be_free)
