"""Events, as the API writes them: insert, patch, update, delete, move and quickAdd."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from calendar_env.server.agenda import find_event, is_on
from calendar_env.server.context import Arguments, Resource
from calendar_env.server.errors import duplicate, forbidden, invalid, not_found, required
from calendar_env.server.event_body import read_body, without_defaults
from calendar_env.server.event_changes import EventChanges, replacement
from calendar_env.server.guests import answer_for_rooms, invited, read_send_updates, tell
from calendar_env.server.quick_text import read_quick_text
from calendar_env.server.records import Event
from calendar_env.server.recurrence import read_recurrence
from calendar_env.server.times import UTC, at_local, check_range, clock_time, zone

_ID = re.compile(r"[a-v0-9]{5,1024}")


class EventService(EventChanges):
    """The acting user, writing events."""

    def events_insert(self, calendarId: str, body: Arguments, sendUpdates: str | None = None) -> Resource:
        """Create an event on a calendar, which becomes its organizer."""
        calendar, role = self.require(calendarId, "writer")
        told = read_send_updates(sendUpdates)
        event_id = self._free_id(body.get("id"))
        fields = read_body(body, calendar["time_zone"])
        for name in ("start", "end"):
            if name not in fields:
                raise required(f"{name}, such as {{'dateTime': '2026-03-02T09:00:00', 'timeZone': 'Europe/Berlin'}}")
        check_range(fields["start"], fields["end"])
        fields["recurrence"] = read_recurrence(fields.get("recurrence") or [], fields["start"])
        if fields["recurrence"]:
            self.require_room_for_series(calendar["id"])
        attendees, status = fields.pop("attendees", None) or [], fields.pop("status", None) or "confirmed"
        if status == "cancelled":
            raise invalid("A new event cannot have status 'cancelled'.")
        with self.store.transaction():
            event = Event(
                id=event_id or self.store.new_id(),
                calendar_id=calendar["id"],
                body=without_defaults(fields),
                status=status,
                created=self.stamp,
                creator=self.acting_user,
            )
            event.ical_uid = f"{event.id}@calendar.example"
            event.guests = invited(self.store, event, attendees, calendar["id"])
            answer_for_rooms(self.store, event, self.acting_user, [guest.email for guest in event.guests])
            self.touch(event)
            tell(self.store, "invitation", event, event.guests, told, self.acting_user)
        return self.viewer(calendar["id"], role).show(event)

    def events_patch(self, calendarId: str, eventId: str, body: Arguments, sendUpdates: str | None = None) -> Resource:
        """Change some fields of an event. A list, such as attendees, is replaced as a whole."""
        return self._write_event(calendarId, eventId, body, sendUpdates, whole=False)

    def events_update(self, calendarId: str, eventId: str, body: Arguments, sendUpdates: str | None = None) -> Resource:
        """Replace an event. What is not given is cleared."""
        return self._write_event(calendarId, eventId, body, sendUpdates, whole=True)

    def events_delete(self, calendarId: str, eventId: str, sendUpdates: str | None = None) -> Resource:
        """Cancel an event; on a guest's calendar, take it off that calendar."""
        calendar, _ = self.require(calendarId, "writer")
        told = read_send_updates(sendUpdates)
        event = self.event_on(calendar["id"], eventId, gone=True)
        with self.store.transaction():
            self.cancel_event(event, calendar["id"], told)
        return {}

    def events_move(self, calendarId: str, eventId: str, destination: str, sendUpdates: str | None = None) -> Resource:
        """Give an event to another calendar, which becomes its organizer."""
        source, _ = self.require(calendarId, "writer")
        target, role = self.require(destination, "writer")
        told = read_send_updates(sendUpdates)
        event = self.event_on(source["id"], eventId)
        if event.calendar_id != source["id"]:
            raise forbidden(
                f"Only the organizer's calendar, {event.calendar_id}, can give the event away.",
                "forbiddenForNonOrganizer",
            )
        if event.recurring_event_id is not None:
            raise invalid(f"'{eventId}' is one instance. Move the whole series '{event.recurring_event_id}'.")
        if target["id"] == source["id"] or target["kind"] == "room":
            raise invalid("destination must be another calendar, and no room. A room is booked as an attendee.")
        if event.is_series:
            self.require_room_for_series(target["id"])
        after = event.copy()
        after.calendar_id = target["id"]
        with self.store.transaction():
            for instance in self.store.exceptions(event.id):
                instance.calendar_id = target["id"]
                self.touch(instance)
            self.touch(after)
            tell(self.store, "update", after, after.guests, told, self.acting_user)
        return self.viewer(target["id"], role).show(after)

    def events_quickAdd(self, calendarId: str, text: str, sendUpdates: str | None = None) -> Resource:
        """Create an event from one line, such as "Lunch with Ann on 5 March at 12:30 for 45 minutes"."""
        calendar, _ = self.require(calendarId, "writer")
        zone_name = calendar["time_zone"]
        read = read_quick_text(text, self.now.astimezone(zone(zone_name)).replace(tzinfo=None))
        minutes = self.store.row(
            "SELECT value FROM settings WHERE user_email = ? AND id = 'defaultEventLength'", (self.acting_user,)
        )
        start = at_local(read.start, zone_name)
        usual = timedelta(minutes=int(minutes[0]) if minutes is not None else 60)
        end = start.astimezone(UTC) + (usual if read.length is None else read.length)
        if read.end is not None:
            end = at_local(read.end, zone_name)
        body = {"summary": read.title, "start": clock_time(start, zone_name), "end": clock_time(end, zone_name)}
        return self.events_insert(calendarId, body, sendUpdates)

    def event_on(self, calendar_id: str, event_id: str, *, gone: bool = False) -> Event:
        """The event of that id on a calendar.

        Args:
            calendar_id: The calendar.
            event_id: The event, or the instance of a series.
            gone: Also one that the calendar's owner took off it.

        Raises:
            CalendarError: There is none on this calendar.
        """
        event = find_event(self.store, event_id.strip())
        guest = None if event is None else event.guest(calendar_id)
        if event is None or not (is_on(event, calendar_id) or (gone and guest is not None)):
            raise not_found(
                f"event '{event_id:.80}' on the calendar '{calendar_id}'",
                "events_list names the events of a calendar, events_instances the instances of a series.",
            )
        return event

    def _write_event(
        self, calendar_id: str, event_id: str, body: Arguments, send_updates: str | None, *, whole: bool
    ) -> Resource:
        calendar, role = self.require(calendar_id, "writer")
        told = read_send_updates(send_updates)
        event = self.event_on(calendar["id"], event_id)
        fields = read_body(body, event.start.get("timeZone") or calendar["time_zone"])
        with self.store.transaction():
            changed = self.change_event(event, calendar["id"], replacement(fields) if whole else fields, told)
        return self.viewer(calendar["id"], role).show(changed)

    def _free_id(self, given: Any) -> str | None:
        if given is None:
            return None
        if not isinstance(given, str) or not _ID.fullmatch(given):
            raise invalid("An event's id has 5 or more characters, of the letters a to v and digits. Or leave it out.")
        if self.store.event(given) is not None:
            raise duplicate(f"event '{given:.80}'")
        return given
