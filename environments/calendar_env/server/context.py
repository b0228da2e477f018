"""What every part of the service needs: whose calls these are, when it is, and the tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from calendar_env.server.access import require_role
from calendar_env.server.records import Event
from calendar_env.server.tables import Row, Tables
from calendar_env.server.times import UTC
from calendar_env.server.views import Viewer

Resource = dict[str, Any]
Arguments = dict[str, Any]


class ServiceContext:
    """One user at work on a company's calendars, at one moment.

    Args:
        store: The calendars.
        acting_user: The user's address. All rights are this user's.
        now: The world's date and time, aware of its zone. It stands still.
    """

    def __init__(self, store: Tables, acting_user: str, now: datetime) -> None:
        self.store = store
        self.acting_user = acting_user
        self.now = now

    @property
    def stamp(self) -> str:
        """Now, as times of change are kept."""
        return self.now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def calendar_id(self, given: str) -> str:
        """The id of a calendar, where "primary" is the acting user's."""
        text = given.strip()
        return self.acting_user if text == "primary" else text

    def require(self, given: str, role: str) -> tuple[Row, str]:
        """The calendar that was named and the acting user's role on it, where that is great enough."""
        return require_role(self.store, self.calendar_id(given), self.acting_user, role)

    def viewer(self, calendar_id: str, role: str) -> Viewer:
        """The acting user, looking at a calendar."""
        return Viewer(self.store, self.acting_user, calendar_id, role)

    def touch(self, event: Event) -> None:
        """Write an event that the acting user changed now."""
        event.updated = self.stamp
        self.store.save_event(event)
