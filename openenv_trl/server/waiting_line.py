"""Clients that wait for a slot: first come, first served, each only until its own deadline.

Promises: nobody overtakes; whoever gives up leaves no trace; whoever was given a slot and is gone before taking it is
told so by `leave`, so that the slot goes to the next. It owns no slot, no task, no clock.
"""

from __future__ import annotations

from collections import OrderedDict


class WaitingLine:
    """The line.

    Args:
        most: How many may wait at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[str, float] = OrderedDict()
        self._served: set[str] = set()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def join(self, ticket: str, deadline: float) -> bool:
        """Stand at the end of the line. False where it is full."""
        if len(self._waiting) >= self._most:
            return False
        self._waiting[ticket] = deadline
        return True

    def first(self, now: float) -> str | None:
        """Return whose turn it is; those whose deadline has passed wait no longer."""
        while self._waiting:
            ticket = next(iter(self._waiting))
            if self._waiting[ticket] > now:
                return ticket
            del self._waiting[ticket]
        return None

    def serve(self, ticket: str) -> None:
        """Give the first in the line a slot."""
        del self._waiting[ticket]
        self._served.add(ticket)

    def leave(self, ticket: str) -> bool:
        """Step out of the line, with a slot or without one. Returns whether a slot was given."""
        self._waiting.pop(ticket, None)
        served = ticket in self._served
        self._served.discard(ticket)
        return served
