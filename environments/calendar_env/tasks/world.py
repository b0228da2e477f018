"""A company's calendars as they are written down before an episode: the same in memory and in every store.

What is written is recorded, so that it can be put into any number of empty stores, and kept as events in the API's
shape, so that a task's author can ask who is free while the task is still being made up.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.busy import Span, busy_spans, is_free
from calendar_env.tasks.occurrences import Key, Occurrence, moment, occurrences
from calendar_env.tasks.people import Person, Room

if TYPE_CHECKING:
    from calendar_env.server.store import CalendarStore

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"  # what the API allows in ids of events

Body = dict[str, Any]


class World:
    """What stands in the calendars.

    Args:
        rng: Where ids are drawn from.
        horizon: From when to when events matter, both aware.
    """

    def __init__(self, rng: random.Random, horizon: tuple[datetime, datetime]) -> None:
        self.horizon = horizon
        self.events: dict[str, Body] = {}
        self._rng = rng
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._zones: dict[str, str] = {}
        self._spans: dict[str, list[Span]] = {}
        self._expanded: list[Occurrence] | None = None

    def seed(self, store: CalendarStore) -> None:
        """Write everything into an empty store."""
        for name, positional, named in self._calls:
            getattr(store, name)(*positional, **named)

    def person(self, person: Person) -> None:
        """Add a user with a primary calendar."""
        self._zones[person.email] = person.zone
        self._record(
            "add_user",
            person.email,
            person.name,
            role=person.role,
            time_zone=person.zone,
            working_hours={day: list(hours) for day, hours in person.hours.items()},
            manager=person.manager,
            title=person.title,
        )

    def room(self, room: Room) -> None:
        """Add a room."""
        self._zones[room.email] = room.zone
        self._record(
            "add_room",
            room.email,
            room.name,
            capacity=room.capacity,
            time_zone=room.zone,
            location=room.city,
            features=tuple(room.features),
        )

    def group(self, email: str, members: Sequence[str], name: str) -> None:
        """Add a group of users."""
        self._record("add_group", email, list(members), display_name=name)

    def calendar(self, calendar_id: str, summary: str, owner: str, *, zone: str, description: str = "") -> str:
        """Add a calendar beside the primary ones."""
        self._zones[calendar_id] = zone
        self._record("add_calendar", calendar_id, summary, owner, time_zone=zone, description=description)
        return calendar_id

    def rule(self, calendar_id: str, scope_type: str, scope_value: str, role: str) -> None:
        """Share a calendar."""
        self._record("add_acl", calendar_id, scope_type, scope_value, role)

    def list_entry(self, user: str, calendar_id: str) -> None:
        """Put a calendar on a user's list."""
        self._record("add_list_entry", user, calendar_id)

    def identifier(self, length: int = 20) -> str:
        """A new id that says nothing of what it names."""
        return "".join(self._rng.choice(_ALPHABET) for _ in range(length))

    def event(self, calendar_id: str, body: Body, *, at: datetime | None = None) -> str:
        """Add an event in the API's shape; returns its id."""
        identifier = self.identifier()
        self.events[identifier] = {**body, "calendarId": calendar_id}
        self._record("add_event", calendar_id, {**body, "id": identifier}, at=at)
        return identifier

    def exception(self, event_id: str, original: datetime, changes: Body) -> None:
        """Change or cancel (``{"status": "cancelled"}``) the instance of a series that starts at a local time."""
        start = {"dateTime": original.isoformat()}
        master = {name: value for name, value in self.events[event_id].items() if name != "recurrence"}
        exception = {**master, **changes, "recurringEventId": event_id, "originalStartTime": start}
        self.events[f"{event_id}_{moment(start):%Y%m%dT%H%M%SZ}"] = exception
        self._record("add_exception", event_id, original.replace(tzinfo=None).isoformat(), changes)

    def occurrences(self) -> list[Occurrence]:
        """All occurrences within the horizon."""
        if self._expanded is None:
            self._expanded = occurrences(self.events, *self.horizon)
        return self._expanded

    def keys(self, event_id: str) -> list[Key]:
        """The names of the occurrences of an event or series within the horizon, in order."""
        return [each.key for each in sorted(self.occurrences(), key=lambda each: each.start) if each.key[0] == event_id]

    def busy(self, email: str) -> list[Span]:
        """When that person or room is busy."""
        found = self.occurrences()
        if email not in self._spans:
            self._spans[email] = busy_spans(found, email, self._zones[email])
        return self._spans[email]

    def free(self, emails: Iterable[str], start: datetime, end: datetime) -> bool:
        """Whether all of them are free in ``[start, end)``."""
        return all(is_free(self.busy(email), start, end) for email in emails)

    def _record(self, name: str, *positional: Any, **named: Any) -> None:
        self._expanded = None
        self._spans.clear()
        self._calls.append((name, positional, named))


def timed(day: date, clock: str, minutes: int, zone: str) -> Body:
    """``start`` and ``end`` of an event at that local time ("HH:MM")."""
    start = at(day, clock, zone)
    end = (start.astimezone(ZoneInfo("UTC")) + timedelta(minutes=minutes)).astimezone(ZoneInfo(zone))
    return {
        "start": {"dateTime": start.isoformat(), "timeZone": zone},
        "end": {"dateTime": end.isoformat(), "timeZone": zone},
    }


def all_day(first: date, days: int = 1) -> Body:
    """``start`` and ``end`` of an event that lasts whole days."""
    return {"start": {"date": first.isoformat()}, "end": {"date": (first + timedelta(days=days)).isoformat()}}


def at(day: date, clock: str, zone: str) -> datetime:
    """The time "HH:MM" on that day in that zone."""
    hour, minute = map(int, clock.split(":"))
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=ZoneInfo(zone))
