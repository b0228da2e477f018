"""A company's calendars as a task sets them up: people, groups, rooms, calendars, rules and events, inserted directly.

No rights are checked here, no room answers and nobody is told: what is inserted is what was there before the episode.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from calendar_env.server.errors import invalid, not_found
from calendar_env.server.event_body import read_body, without_defaults
from calendar_env.server.records import Event, Guest
from calendar_env.server.recurrence import (
    as_instance,
    instance_end,
    instance_start,
    instance_suffix,
    read_recurrence,
    series,
)
from calendar_env.server.snapshot import snapshot
from calendar_env.server.tables import Tables
from calendar_env.server.times import check_range, read_time, require_time_zone

WORKING_HOURS: dict[str, list[str]] = {day: ["09:00", "17:00"] for day in ("MO", "TU", "WE", "TH", "FR")}
"""Working hours of a user who has no others."""

SETTINGS = {
    "dateFieldOrder": "DMY",
    "defaultEventLength": "60",
    "format24HourTime": "true",
    "hideInvitations": "false",
    "hideWeekends": "false",
    "locale": "en",
    "remindOnRespondedEventsOnly": "false",
    "showDeclinedEvents": "true",
    "useKeyboardShortcuts": "true",
    "weekStart": "1",
}
"""Settings of a user who has no others; ``timezone`` and ``workingHours`` come of the user."""

UserRole = Literal["employee", "manager", "assistant", "room_admin"]


class CalendarStore(Tables):
    """One company's calendars, in memory.

    Args:
        id_seed: What ids that are made up come of.

    Example:
        >>> store = CalendarStore(id_seed="readme")
        >>> store.add_user("ann@acme.example", "Ann Weber")
        'ann@acme.example'
        >>> start, end = {"dateTime": "2026-03-02T09:00:00"}, {"dateTime": "2026-03-02T09:30:00"}
        >>> event = store.add_event("ann@acme.example", {"summary": "Stand-up", "start": start, "end": end})
    """

    def clone(self) -> CalendarStore:
        """Another store with the same content."""
        other = CalendarStore.__new__(CalendarStore)
        other.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        other.connection.row_factory = sqlite3.Row
        other.id_seed = self.id_seed
        self.connection.backup(other.connection)
        return other

    def dump(self) -> dict[str, Any]:
        """The content as plain values in one order, for comparison; without revisions and times of change."""
        return snapshot(self)

    def add_user(
        self,
        email: str,
        display_name: str,
        *,
        role: UserRole = "employee",
        time_zone: str = "Europe/Berlin",
        working_hours: Mapping[str, Sequence[str]] | None = None,
        manager: str | None = None,
        title: str = "",
        settings: Mapping[str, str] | None = None,
        domain_role: str | None = "freeBusyReader",
    ) -> str:
        """Add a person with a primary calendar, whose id is the address.

        Args:
            email: The address.
            display_name: The person's name.
            role: What the person is in the company. It gives no right by itself.
            time_zone: The person's and the calendar's zone.
            working_hours: Two clock times for each working day, by "MO" to "SU"; Monday to Friday 9 to 17 if None.
            manager: The address of the person's manager.
            title: The person's job.
            settings: Settings that differ from the usual ones.
            domain_role: What everyone of the address's domain may do with the calendar; None for nothing.

        Returns:
            The address.
        """
        hours = {day: list(span) for day, span in (WORKING_HOURS if working_hours is None else working_hours).items()}
        self.execute(
            "INSERT INTO users VALUES (?,?,?,?,?,?,?)",
            (email, display_name, role, title, require_time_zone("time_zone", time_zone), json.dumps(hours), manager),
        )
        self._add_calendar(email, "primary", email, email, "", "", time_zone, None, ())
        self.add_acl(email, "user", email, "owner")
        if domain_role is not None:
            self.add_acl(email, "domain", email.partition("@")[2], domain_role)
        self.add_list_entry(email, email)
        own = {"timezone": time_zone, "workingHours": json.dumps(hours)}
        for setting_id, value in {**SETTINGS, **own, **(settings or {})}.items():
            self.set_setting(email, setting_id, value)
        return email

    def add_group(self, email: str, members: Sequence[str], display_name: str = "") -> str:
        """Add a mailing list of people. Returns its address."""
        self.execute("INSERT INTO groups VALUES (?,?)", (email, display_name or email.partition("@")[0]))
        for member in members:
            self.execute("INSERT INTO group_members VALUES (?,?)", (email, member))
        return email

    def add_calendar(
        self,
        calendar_id: str,
        summary: str,
        owner: str,
        *,
        time_zone: str = "Europe/Berlin",
        description: str = "",
        location: str = "",
    ) -> str:
        """Add a secondary calendar that a person owns and has on the calendar list. Returns its id."""
        self._add_calendar(calendar_id, "secondary", owner, summary, description, location, time_zone, None, ())
        self.add_acl(calendar_id, "user", owner, "owner")
        self.add_list_entry(owner, calendar_id)
        return calendar_id

    def add_room(
        self,
        email: str,
        name: str,
        *,
        capacity: int,
        time_zone: str = "Europe/Berlin",
        location: str = "",
        features: Sequence[str] = (),
        admin: str | None = None,
        domain_role: str | None = "reader",
    ) -> str:
        """Add a room: a calendar that is booked by inviting its address, which is returned.

        Args:
            email: The room's address.
            name: What people call it.
            capacity: How many people fit in.
            time_zone: The room's zone.
            location: Where it is.
            features: What is in it, such as "projector".
            admin: Who owns its calendar.
            domain_role: What everyone of its domain may do; None for nothing.
        """
        self._add_calendar(email, "room", admin, name, "", location, time_zone, capacity, features)
        if admin is not None:
            self.add_acl(email, "user", admin, "owner")
        if domain_role is not None:
            self.add_acl(email, "domain", email.partition("@")[2], domain_role)
        return email

    def add_acl(self, calendar_id: str, scope_type: str, scope_value: str, role: str) -> str:
        """Let someone have a role on a calendar. Returns the rule's id."""
        rule_id = scope_type if scope_type == "default" else f"{scope_type}:{scope_value}"
        self.execute(
            "INSERT OR REPLACE INTO acl VALUES (?,?,?,?,?)", (calendar_id, rule_id, scope_type, scope_value, role)
        )
        return rule_id

    def add_list_entry(
        self,
        user: str,
        calendar_id: str,
        *,
        summary_override: str | None = None,
        color_id: str | None = None,
        hidden: bool = False,
        selected: bool = True,
        default_reminders: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Put a calendar on a person's list."""
        reminders = json.dumps([dict(reminder) for reminder in default_reminders])
        self.execute(
            "INSERT OR REPLACE INTO calendar_list VALUES (?,?,?,?,?,?,?)",
            (user, calendar_id, summary_override, color_id, int(hidden), int(selected), reminders),
        )

    def set_setting(self, user: str, setting_id: str, value: str) -> None:
        """Set one of a person's settings."""
        self.execute("INSERT OR REPLACE INTO settings VALUES (?,?,?)", (user, setting_id, value))

    def add_event(
        self, calendar_id: str, body: Mapping[str, Any], *, creator: str | None = None, at: datetime | None = None
    ) -> str:
        """Add an event in the API's shape to its organizer's calendar.

        Args:
            calendar_id: The organizer's calendar.
            body: The event; its ``id`` is made up where it has none. Attendees' answers are kept as given.
            creator: Who made it; the calendar's owner if None.
            at: When it was made; the start of 2026 if None.

        Returns:
            The event's id.

        Raises:
            CalendarError: The event cannot be like that.
        """
        calendar = self.calendar(calendar_id)
        fields = read_body(body, calendar["time_zone"])
        for name in ("start", "end"):
            if name not in fields:
                raise invalid(f"An event needs {name}.")
        check_range(fields["start"], fields["end"])
        fields["recurrence"] = read_recurrence(fields.get("recurrence") or [], fields["start"])
        stamp = at.isoformat(timespec="seconds") if at else "2026-01-01T00:00:00+00:00"
        event_id = str(body.get("id") or self.new_id())
        if self.event(event_id) is not None:
            raise invalid(f"There is an event '{event_id}' already.")
        guests = [self._guest(entry) for entry in fields.pop("attendees", None) or []]
        self.save_event(
            Event(
                id=event_id,
                calendar_id=calendar_id,
                status=fields.pop("status", None) or "confirmed",
                body=without_defaults(fields),
                guests=guests,
                ical_uid=f"{event_id}@calendar.example",
                created=stamp,
                updated=stamp,
                creator=creator or calendar["owner"] or calendar_id,
            )
        )
        return event_id

    def add_exception(self, event_id: str, original_start: str, changes: Mapping[str, Any]) -> str:
        """Make one instance of a series differ from it.

        Args:
            event_id: The series.
            original_start: When the instance starts by the series: "2026-03-02T09:00:00" on the series' clocks, or
                "2026-03-02" for whole days.
            changes: Fields of the event; ``{"status": "cancelled"}`` for an instance that does not take place.

        Returns:
            The instance's id.

        Raises:
            CalendarError: There is no such instance, or it cannot be like that.
        """
        parent = self.event(event_id)
        if parent is None or not parent.is_series:
            raise not_found(f"series '{event_id}'")
        zone_name = parent.start.get("timeZone", "UTC")
        key = "dateTime" if "T" in original_start else "date"
        begin = read_time("original_start", {key: original_start}, zone_name)
        if as_instance(begin) not in series(parent.body["recurrence"], parent.start):
            raise not_found(f"instance of '{event_id}' at {original_start}")
        begin = instance_start(as_instance(begin), parent.start)
        fields = read_body(changes, zone_name)
        guests = fields.pop("attendees", None)
        status = fields.pop("status", None) or "confirmed"
        event = parent.copy()
        event.body = {**event.body, "start": begin, "end": instance_end(begin, parent.start, parent.end)}
        event.body = without_defaults({**event.body, **fields, "recurrence": []})
        check_range(event.start, event.end)
        suffix = instance_suffix(begin)
        event.id, event.recurring_event_id, event.original_start = f"{event_id}_{suffix}", event_id, suffix
        event.status = status
        if guests is not None:
            event.guests = [self._guest(entry) for entry in guests]
        self.save_event(event)
        return event.id

    def _guest(self, entry: dict[str, Any]) -> Guest:
        row = self.row("SELECT kind FROM calendars WHERE id = ?", (entry["email"],))
        room = {"resource": True} if row is not None and row["kind"] == "room" else {}
        return Guest({"responseStatus": "needsAction", **entry, **room})

    def _add_calendar(
        self,
        calendar_id: str,
        kind: str,
        owner: str | None,
        summary: str,
        description: str,
        location: str,
        time_zone: str,
        capacity: int | None,
        features: Sequence[str],
    ) -> None:
        self.execute(
            "INSERT INTO calendars VALUES (?,?,?,?,?,?,?,?,?,0)",
            (
                calendar_id,
                kind,
                owner,
                summary,
                description,
                location,
                require_time_zone("time_zone", time_zone),
                capacity,
                json.dumps(list(features)),
            ),
        )
