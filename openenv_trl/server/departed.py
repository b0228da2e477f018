"""Sessions whose connection broke: who gives way, when another client wants a slot and none is free.

Pure: the time is an argument. A client that lost its connection comes back within moments, so a session is left alone
for a while; after that it keeps its slot only as long as nobody else wants it.
"""

from __future__ import annotations

from collections.abc import Callable

COMES_BACK_S = 2.0
"""Seconds in which a client whose connection broke would have come back."""


class Departed:
    """The sessions of clients that are gone, the longest gone first."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._since)

    def add(self, session_id: str, now: float) -> None:
        """Its connection broke."""
        self._since[session_id] = now

    def remove(self, session_id: str) -> None:
        """Its client is back, or it has ended."""
        self._since.pop(session_id, None)

    def gives_way(self, now: float, may_end: Callable[[str], bool]) -> tuple[str, float] | None:
        """Return who gives way first, and in how many seconds; None where nobody does.

        Args:
            now: The time.
            may_end: Whether a session rests, so that it can be ended.
        """
        for session_id, since in self._since.items():
            if may_end(session_id):
                return session_id, max(0.0, since + COMES_BACK_S - now)
        return None
