"""Events and their attendees, as they are kept: what is read from the tables and written to them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from calendar_env.server.times import EventTime


@dataclass
class Guest:
    """One attendee of an event, with what the event looks like on the own calendar.

    Attributes:
        data: The API's attendee resource: email, responseStatus, optional and so on.
        own: The guest's own reminders, colour, transparency and visibility, as far as set.
        removed: Whether the guest took the event off the own calendar.
    """

    data: dict[str, Any]
    own: dict[str, Any] = field(default_factory=dict)
    removed: bool = False

    @property
    def email(self) -> str:
        """Whose entry it is."""
        return self.data["email"]

    @property
    def response(self) -> str:
        """What the guest answered."""
        return self.data.get("responseStatus", "needsAction")


@dataclass
class Event:
    """One row of events: a single event, a series, or an instance of a series that differs from it.

    Attributes:
        calendar_id: The organizer's calendar.
        original_start: For an instance: what its id ends with, its start by the series.
        body: The shared fields, in the API's shape, without attendees.
        guests: The attendees, in order.
    """

    id: str
    calendar_id: str
    body: dict[str, Any]
    guests: list[Guest] = field(default_factory=list)
    ical_uid: str = ""
    recurring_event_id: str | None = None
    original_start: str | None = None
    status: str = "confirmed"
    created: str = ""
    updated: str = ""
    creator: str = ""
    sequence: int = 0
    revision: int = 0

    @property
    def start(self) -> EventTime:
        """When it starts; for a series, when its first instance does."""
        return self.body["start"]

    @property
    def end(self) -> EventTime:
        """When it ends."""
        return self.body["end"]

    @property
    def is_series(self) -> bool:
        """Whether it stands for many instances."""
        return bool(self.body.get("recurrence"))

    def guest(self, email: str) -> Guest | None:
        """The attendee of that address."""
        return next((guest for guest in self.guests if guest.email == email), None)

    def copy(self) -> Event:
        """The same event, to be changed without changing this one."""
        event = copy.copy(self)
        event.body = dict(self.body)
        event.guests = [Guest(dict(guest.data), dict(guest.own), guest.removed) for guest in self.guests]
        return event
