"""Solvers of requests to change what is there: meetings, series, organizers, time zones."""

from __future__ import annotations

import re
from datetime import timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.busy import is_free, midnight
from calendar_env.tasks.solvers.desk import Desk, Refused, begins, guests, minutes_of, when
from calendar_env.tasks.world import at

Spec = dict[str, Any]


def move_meeting(spec: Spec, desk: Desk) -> str:
    """Patch the times; where its room is taken then, the room too."""
    event = desk.event_on(spec["old_day"], spec["zone"], spec["title"])
    start, minutes = at(spec["day"], spec["clock"], spec["zone"]), minutes_of(event)
    changes: dict[str, Any] = when(start, minutes, spec["zone"])
    if spec["new_room"]:
        people = [each for each in event["attendees"] if not each.get("resource")]
        taken = {each["email"] for each in event["attendees"]} - {each["email"] for each in people}
        rooms = [each for each in desk.rooms(spec["city"], len(people)) if each["resourceEmail"] not in taken]
        begin = start.astimezone(timezone.utc)
        end = begin + timedelta(minutes=minutes)
        busy = desk.busy([each["resourceEmail"] for each in rooms], begin, end)
        room = next(each for each in rooms if is_free(busy[each["resourceEmail"]], begin, end))
        changes["attendees"] = [*people, *guests([room["resourceEmail"]])]
    desk.call(
        "events_patch",
        calendarId="primary",
        eventId=event["id"],
        **changes,
        sendUpdates="all" if spec["tell"] else None,
    )
    return "Moved."


def change_following(spec: Spec, desk: Desk) -> str:
    """End the series before the date and go on with a new one."""
    old = desk.series(spec["title"])
    cut = midnight(spec["day"], spec["zone"])
    rule = next(line for line in old["recurrence"] if line.startswith("RRULE"))
    ended = re.sub(r";(COUNT|UNTIL)=[^;]*", "", rule) + f";UNTIL={cut.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}"
    going_on = rule
    count = re.search(r"COUNT=(\d+)", rule)
    if count is not None:
        where: dict[str, Any] = {
            "calendarId": "primary",
            "eventId": old["id"],
            "timeMax": cut.isoformat(),
            "showDeleted": True,
        }
        before = desk.all_pages("events_instances", **where)
        going_on = rule.replace(count[0], f"COUNT={int(count[1]) - len(before)}")
    attendees = [{"email": each["email"]} for each in old["attendees"]]
    if spec["leaves"]:
        leaver = desk.address(spec["leaves"])
        attendees = [each for each in attendees if each["email"] != leaver] + guests([desk.address(spec["joins"])])
    desk.call("events_patch", calendarId="primary", eventId=old["id"], recurrence=[ended])
    desk.call(
        "events_insert",
        calendarId="primary",
        summary=spec["new_title"],
        location=old.get("location"),
        **when(at(spec["day"], spec["clock"], spec["zone"]), spec["minutes"], spec["zone"]),
        recurrence=[going_on],
        attendees=attendees,
    )
    return "Changed from that date on."


def fix_time_zone(spec: Spec, desk: Desk) -> str:
    """The same date and time of day on the right clock."""
    meant, own = spec["zone"], spec["own_zone"]
    if spec["level"] == "hard":
        found = [desk.series(spec["title"])]
    elif spec["level"] == "easy":
        found = [desk.event_on(spec["day"], own, spec["title"])]
    else:
        tomorrow = midnight(spec["today"] + timedelta(days=1), own)
        every = desk.events(tomorrow, tomorrow + timedelta(weeks=8), words=spec["tag"])
        found = [each for each in every if spec["tag"] in each.get("summary", "") and desk.is_mine(each)]
    for event in found:
        local = begins(event).astimezone(ZoneInfo(own))
        start = at(local.date(), f"{local:%H:%M}", meant)
        desk.call("events_patch", calendarId="primary", eventId=event["id"], **when(start, minutes_of(event), meant))
    return f"{len(found)} corrected."


def hand_over(spec: Spec, desk: Desk) -> str:
    """Move the events that the request means."""
    target = desk.address(spec["heir"]) if spec["level"] == "hard" else desk.calendar(spec["calendar_title"])
    if spec["level"] == "easy":
        handed = [desk.event_on(spec["day"], spec["zone"], spec["title"])["id"]]
    else:
        tomorrow = midnight(spec["today"] + timedelta(days=1), spec["zone"])
        found = desk.events(tomorrow, tomorrow + timedelta(weeks=12), words=spec["project"])
        handed: list[str] = []
        for event in found:
            if not event.get("summary", "").startswith(spec["project"]) or not desk.is_mine(event):
                continue
            if spec["level"] == "hard" and target not in {each["email"] for each in event.get("attendees", ())}:
                continue
            handed.append(event.get("recurringEventId", event["id"]))
    for identifier in dict.fromkeys(handed):
        desk.call("events_move", calendarId="primary", eventId=identifier, destination=target)
    return "Handed over."


def respect_permissions(spec: Spec, desk: Desk) -> str:
    """Try each thing in turn, and tell what was refused."""
    calendars = [desk.calendar(title) for title in spec["calendars"]]
    refused: list[str] = []
    if spec["kind"] == "share":
        person = desk.address(spec["person"])
        for title, calendar in zip(spec["calendars"], calendars, strict=True):
            try:
                scope = {"type": "user", "value": person}
                desk.call("acl_insert", calendarId=calendar, role="reader", scope=scope)
            except Refused:
                refused.append(f"sharing {title}")
    for calendar, title in zip(calendars, spec["titles"], strict=True):
        found = desk.all_pages("events_list", calendarId=calendar, q=title)
        event = next(each for each in found if each.get("summary") == title)
        try:
            _apply(spec, desk, calendar, event)
        except Refused:
            refused.append(title)
    return f"Not possible: {', '.join(refused)}."


def _apply(spec: Spec, desk: Desk, calendar: str, event: dict[str, Any]) -> None:
    where = {"calendarId": calendar, "eventId": event["id"]}
    if spec["kind"] == "delete":
        desk.call("events_delete", **where)
    elif spec["kind"] == "move":
        start = at(spec["day"], spec["clock"], spec["zone"])
        desk.call("events_patch", **where, **when(start, minutes_of(event), spec["zone"]))
    else:
        desk.call("events_patch", **where, summary=spec["new_title"])
