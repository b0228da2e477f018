"""The sessions of one server that have a slot, by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openenv_trl.errors import SessionNotFoundError

if TYPE_CHECKING:
    from openenv_trl.server.hosted_session import HostedSession


class SessionRegistry:
    """Finds sessions. One is here from before its environment is built until its slot is free."""

    def __init__(self) -> None:
        self._sessions: dict[str, HostedSession] = {}
        self._to_close: set[str] = set()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._sessions)

    def all(self) -> list[HostedSession]:
        """Return all sessions, the oldest first."""
        return list(self._sessions.values())

    def get(self, session_id: str) -> HostedSession | None:
        """Return the session of that id, or None."""
        return self._sessions.get(session_id)

    def find(self, session_id: str) -> HostedSession:
        """Return the session of that id.

        Raises:
            SessionNotFoundError: There is none: it has ended, or never was.
        """
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionNotFoundError(f"Unknown session_id: {session_id}", session_id=session_id)
        return found

    def add(self, hosted: HostedSession) -> None:
        """A session begins."""
        self._sessions[hosted.session_id] = hosted

    def remove(self, session_id: str) -> bool:
        """A session has ended. False where it was not here."""
        self._to_close.discard(session_id)
        return self._sessions.pop(session_id, None) is not None

    def wish_to_close(self, session_id: str) -> None:
        """The session shall end when its connection is gone."""
        self._to_close.add(session_id)

    def takes_wish_to_close(self, session_id: str) -> bool:
        """Whether that was wished; asked when the connection is gone."""
        wished = session_id in self._to_close
        self._to_close.discard(session_id)
        return wished
