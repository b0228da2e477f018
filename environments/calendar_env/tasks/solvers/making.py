"""Solvers of requests for something new: events, meetings in rooms, series, calendars."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.busy import is_free
from calendar_env.tasks.solvers.desk import Desk, Resource, guests, when
from calendar_env.tasks.world import at

Spec = dict[str, Any]


def create_event(spec: Spec, desk: Desk) -> str:
    """Enter the event."""
    start = at(spec["day"], spec["clock"], spec["zone"])
    desk.call(
        "events_insert",
        calendarId="primary",
        summary=spec["title"],
        **when(start, spec["minutes"], spec["zone"]),
        location=spec["location"],
        visibility="private" if spec["private"] else None,
        transparency="transparent" if spec["free"] else None,
        attendees=guests(desk.addresses(spec["guests"])) or None,
    )
    return "The event is in your calendar."


def book_room(spec: Spec, desk: Desk) -> str:
    """Find the room, then invite guests and room at once."""
    start = at(spec["day"], spec["clock"], spec["zone"]).astimezone(timezone.utc)
    rooms = desk.rooms(spec["city"], spec["seats"] or 1, spec["feature"])
    if spec["room"]:
        rooms = [each for each in rooms if each["resourceName"] == spec["room"]]
    room = _free_room(desk, rooms, [start], spec["minutes"])
    desk.call(
        "events_insert",
        calendarId="primary",
        summary=spec["title"],
        **when(start, spec["minutes"], spec["zone"]),
        attendees=guests([*desk.addresses(spec["guests"]), room["resourceEmail"]]),
    )
    return f"Booked, in {room['resourceName']}."


def find_slot(spec: Spec, desk: Desk) -> str:
    """Search free/busy and working hours, then invite."""
    people = [desk.call("users_get", userKey=desk.user), *(desk.person(name) for name in spec["guests"])]
    start = desk.first_slot(people, spec["begin"], spec["minutes"])
    desk.call(
        "events_insert",
        calendarId="primary",
        summary=spec["title"],
        **when(start, spec["minutes"], people[0]["timeZone"]),
        attendees=guests([each["primaryEmail"] for each in people[1:]]),
    )
    return f"You meet at {start.astimezone(ZoneInfo(people[0]['timeZone'])):%Y-%m-%d %H:%M}."


def weekly_series(spec: Spec, desk: Desk) -> str:
    """One series with its rule, and EXDATEs for what is left out."""
    zone = spec["zone"]
    start = at(spec["first"], spec["clock"], zone)
    skipped = [day.isoformat() for day in spec["skip"]]
    rule = f"RRULE:FREQ=WEEKLY;BYDAY={','.join(spec['weekdays'])}"
    if spec["count"]:
        rule += f";COUNT={spec['count']}"
    else:
        last = at(spec["until"], "23:59", zone).astimezone(timezone.utc)
        rule += f";UNTIL={last:%Y%m%dT%H%M%SZ}"
    if spec["holidays"]:
        days = desk.events(start, at(spec["until"], "23:59", zone), spec["holidays"])
        skipped = [day["start"]["date"] for day in days]
    exceptions = [
        f"EXDATE;TZID={zone}:{day.replace('-', '')}T{spec['clock'].replace(':', '')}00"
        for day in skipped
        if ("MO", "TU", "WE", "TH", "FR", "SA", "SU")[datetime.fromisoformat(day).weekday()] in spec["weekdays"]
    ]
    desk.call(
        "events_insert",
        calendarId="primary",
        summary=spec["title"],
        **when(start, spec["minutes"], zone),
        recurrence=[rule, *exceptions],
        attendees=guests(desk.addresses(spec["guests"])),
    )
    return "The series is set up."


def recurring_room(spec: Spec, desk: Desk) -> str:
    """Look at every date of the series before a room is chosen."""
    first = at(spec["first"], spec["clock"], spec["zone"])
    starts = [(first + timedelta(weeks=n)).astimezone(timezone.utc) for n in range(spec["weeks"])]
    rooms = desk.rooms(spec["city"], 1 if spec["room"] else spec["seats"])
    if spec["room"]:
        rooms = [each for each in rooms if each["resourceName"] == spec["room"]]
    room = _free_room(desk, rooms, starts, spec["minutes"])
    if spec["level"] == "hard":
        desk.call(
            "events_insert",
            calendarId="primary",
            summary=spec["title"],
            **when(first, spec["minutes"], spec["zone"]),
            recurrence=[f"RRULE:FREQ=WEEKLY;COUNT={spec['weeks']}"],
            attendees=guests([*desk.addresses(spec["guests"]), room["resourceEmail"]]),
        )
    else:
        series = desk.series(spec["title"])
        attendees = [*series["attendees"], {"email": room["resourceEmail"]}]
        desk.call("events_patch", calendarId="primary", eventId=series["id"], attendees=attendees)
    return f"{room['resourceName']} is booked for all dates."


def team_calendar(spec: Spec, desk: Desk) -> str:
    """Make it, share it, fill it."""
    made = desk.call("calendars_insert", summary=spec["name"], timeZone=spec["zone"], description=spec["description"])
    for kind, who, role in spec["shared"]:
        value = who if kind == "group" else desk.address(who)
        desk.call("acl_insert", calendarId=made["id"], role=role, scope={"type": kind, "value": value})
    for title, day, clock, minutes in spec["events"]:
        start = at(day, clock, spec["zone"])
        desk.call("events_insert", calendarId=made["id"], summary=title, **when(start, minutes, spec["zone"]))
    return "The calendar is there."


def _free_room(desk: Desk, rooms: list[Resource], starts: list[datetime], minutes: int) -> Resource:
    length = timedelta(minutes=minutes)
    busy = desk.busy([each["resourceEmail"] for each in rooms], starts[0], starts[-1] + length)
    for room in rooms:
        if all(is_free(busy[room["resourceEmail"]], start, start + length) for start in starts):
            return room
    raise LookupError("No room is free.")
