"""Who is invited: new and old guests, mailing lists, rooms that answer by themselves, and messages to people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from calendar_env.server.access import role_on
from calendar_env.server.agenda import Window, busy_spans, instances_of
from calendar_env.server.errors import invalid
from calendar_env.server.records import Event, Guest
from calendar_env.server.tables import Tables
from calendar_env.server.times import UTC, seconds_of, zone

BOOKING_DAYS = 366
"""How far into a series a room looks before it answers."""

SEND_UPDATES = ("all", "externalOnly", "none")


def expanded(tables: Tables, entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attendees as they were given, with the people of a mailing list in place of the list."""
    people: dict[str, dict[str, Any]] = {}
    for entry in entries:
        members = tables.group_members(entry["email"])
        for email in members or [entry["email"]]:
            people.setdefault(email, {**entry, "email": email} if members else entry)
    return list(people.values())


def invited(tables: Tables, event: Event, entries: list[dict[str, Any]], answering: str) -> list[Guest]:
    """The guests that an event has by a new list of attendees.

    Whoever was a guest before keeps the answer given. Nobody answers for others: a new guest has not answered yet,
    whatever the list says; only the calendar that is written for may answer, and an organizer comes.

    Args:
        tables: Where people and rooms are known.
        event: The event, with its guests so far.
        entries: The attendees as they were given.
        answering: The calendar that is written for.
    """
    guests: list[Guest] = []
    for entry in expanded(tables, entries):
        email, before = entry["email"], event.guest(entry["email"])
        given = {name: value for name, value in entry.items() if name != "responseStatus"}
        unasked = "accepted" if email == event.calendar_id else "needsAction"
        response = before.response if before is not None else unasked
        if email == answering:
            response = entry.get("responseStatus", response)
        elif before is not None and "comment" in before.data:
            given["comment"] = before.data["comment"]
        else:
            given.pop("comment", None)
        row = tables.row("SELECT kind FROM calendars WHERE id = ? AND deleted = 0", (email,))
        room = {"resource": True} if row is not None and row["kind"] == "room" else {}
        if row is not None:
            given.pop("displayName", None)  # the directory's, and shown from there
        guest = Guest({**given, "responseStatus": response, **room})
        if before is not None:
            guest.own, guest.removed = dict(before.own), before.removed
        guests.append(guest)
    return guests


def answer_for_rooms(tables: Tables, event: Event, asking: str, rooms: Iterable[str]) -> None:
    """Have rooms accept an event, or decline it where they are busy during any of its instances.

    Args:
        tables: Where the rooms are.
        event: The event, before it is written.
        asking: The user who books.
        rooms: The rooms that are asked, among the event's guests.
    """
    for email in rooms:
        guest = event.guest(email)
        if guest is None or not guest.data.get("resource"):
            continue
        guest.data.pop("comment", None)
        if role_on(tables, email, asking) == "none":
            guest.data.update(responseStatus="declined", comment="Declined: you may not book this room.")
            continue
        clash = _clash(tables, event, email)
        if clash is None or event.body.get("transparency") == "transparent":
            guest.data["responseStatus"] = "accepted"
        else:
            first, last = (datetime.fromtimestamp(seconds, UTC).astimezone(clash[2]) for seconds in clash[:2])
            span = f"{first.isoformat(timespec='minutes')} to {last.isoformat(timespec='minutes')}"
            guest.data.update(responseStatus="declined", comment=f"Declined: busy from {span}.")


def _clash(tables: Tables, event: Event, room: str) -> tuple[int, int, Any] | None:
    zone_name = tables.calendar(room)["time_zone"]
    start, end = seconds_of(event.start, zone_name), seconds_of(event.end, zone_name)
    spans = [(start, end)]
    if event.is_series:
        window = Window(start, start + BOOKING_DAYS * 86400)
        spans = sorted(
            (seconds_of(instance.start, zone_name), seconds_of(instance.end, zone_name))
            for instance in instances_of(tables, event, window, zone_name)
            if instance.status != "cancelled"
        )
    if not spans:
        return None
    # A little wider, so that the answer tells the whole of what is in the way.
    whole = Window(spans[0][0] - 86400, max(last for _, last in spans) + 86400)
    busy = busy_spans(tables, room, whole, zone_name, without=event.recurring_event_id or event.id)
    for first, last in spans:
        for busy_first, busy_last in busy:
            if first < busy_last and busy_first < last:
                return busy_first, busy_last, zone(zone_name)
    return None


def read_send_updates(value: Any) -> str:
    """Who is told of a change, as given.

    Raises:
        CalendarError: It is none of the words for it.
    """
    if value is None:
        return "none"
    if value not in SEND_UPDATES:
        raise invalid(f"sendUpdates must be one of {', '.join(SEND_UPDATES)}, not {value!r:.40}.")
    return str(value)


def tell(tables: Tables, kind: str, event: Event, guests: Iterable[Guest], send_updates: str, sent_by: str) -> None:
    """Send people a message about an event: never to rooms, nor to the organizer or the sender.

    Args:
        tables: Where messages are remembered.
        kind: "invitation", "update", "cancellation".
        event: The event.
        guests: Who is told.
        send_updates: "all", "externalOnly" (people of other domains) or "none".
        sent_by: The acting user.
    """
    if send_updates == "none":
        return
    home = sent_by.partition("@")[2]
    for guest in guests:
        if guest.data.get("resource") or guest.email in (event.calendar_id, sent_by):
            continue
        if send_updates == "all" or guest.email.partition("@")[2] != home:
            tables.notify(kind, event.id, guest.email, sent_by)
