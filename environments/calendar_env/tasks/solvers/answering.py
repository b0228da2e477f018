"""Solvers of requests to cancel, to answer invitations, to sort out clashes, and to answer questions."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.busy import DAYS, midnight, works
from calendar_env.tasks.solvers.desk import Desk, Resource, begins, ends, has_time, minutes_of, when
from calendar_env.tasks.world import at

Spec = dict[str, Any]


def cancel_instance(spec: Spec, desk: Desk) -> str:
    """Delete the instances, by the ids that instances have."""
    zone = spec["zone"]
    if spec["level"] == "hard":
        today = spec["today"]
        holidays = desk.day_events(today + timedelta(days=1), spec["until"], zone, spec["calendar"])
        days = [datetime.fromisoformat(each["start"]["date"]).date() for each in holidays]
    else:
        days = spec["days"]
    for day in days:
        for event in desk.day_events(day, day, zone):
            if event.get("summary") in spec["titles"] and begins(event).astimezone(ZoneInfo(zone)).date() == day:
                desk.call(
                    "events_delete",
                    calendarId="primary",
                    eventId=event["id"],
                    sendUpdates="all" if spec["tell"] else None,
                )
    return "Cancelled."


def out_of_office(spec: Spec, desk: Desk) -> str:
    """Answer and put off what lies in that time, then enter the absence."""
    for event in desk.day_events(spec["first"], spec["last"], spec["zone"]):
        if not has_time(event):
            continue
        if desk.is_mine(event):
            others = [each for each in event.get("attendees", ()) if each["email"] != desk.user]
            if not others or spec["level"] == "easy":
                continue
            if spec["level"] == "medium":
                desk.call("events_delete", calendarId="primary", eventId=event["id"])
            else:
                start = begins(event).astimezone(ZoneInfo(spec["zone"])) + timedelta(days=7)
                moved = when(start, minutes_of(event), spec["zone"])
                desk.call("events_patch", calendarId="primary", eventId=event["id"], **moved)
        elif desk.my_answer(event) not in (None, "declined"):
            desk.answer(event, "declined")
    desk.call(
        "events_insert",
        calendarId="primary",
        summary=spec["title"],
        eventType="outOfOffice",
        start={"date": spec["first"].isoformat()},
        end={"date": (spec["last"] + timedelta(days=1)).isoformat()},
    )
    return "All set."


def clean_duplicates(spec: Spec, desk: Desk) -> str:
    """Group by title, start and end, and keep one of each."""
    first, last = (spec["day"], spec["day"]) if spec["level"] == "easy" else (spec["first"], spec["last"])
    groups: defaultdict[tuple[str, datetime, datetime], list[Resource]] = defaultdict(list)
    for event in desk.day_events(first, last, spec["zone"]):
        if desk.is_mine(event) and "recurringEventId" not in event:
            groups[event["summary"].casefold(), begins(event), ends(event)].append(event)
    for (title, _, _), copies in groups.items():
        if spec["level"] == "easy" and title != spec["title"].casefold():
            continue
        copies.sort(key=lambda event: -len(event.get("attendees", ())))
        for copy in copies[1:]:
            desk.call("events_delete", calendarId="primary", eventId=copy["id"])
    return "Cleaned up."


def reply_invitations(spec: Spec, desk: Desk) -> str:
    """Answer by the rules, in their order."""
    zone = spec["zone"]
    if spec["level"] == "easy":
        desk.answer(desk.event_on(spec["day"], zone, spec["title"]), spec["answer"])
        return "Answered."
    me = desk.call("users_get", userKey=desk.user)
    events = desk.day_events(spec["first"], spec["last"], zone)
    blocking = [
        each
        for each in events
        if desk.my_answer(each) not in ("declined", "needsAction") and each.get("transparency") != "transparent"
    ]
    for event in events:
        if desk.my_answer(event) != "needsAction":
            continue
        start, end = begins(event), ends(event)
        if spec["level"] == "hard" and event["organizer"]["email"] == me.get("manager"):
            answer = "accepted"
        elif any(_span(each, zone)[0] < end and _span(each, zone)[1] > start for each in blocking):
            answer = "declined"
        elif spec["level"] == "hard" and not works(me["workingHours"], zone, start, end):
            answer = "tentative"
        else:
            answer = "accepted"
        desk.answer(event, answer)
    return "Answered."


def resolve_conflict(spec: Spec, desk: Desk) -> str:
    """At each clash, find the two, and treat the one that gives way."""
    home = desk.user.partition("@")[2]
    for day, clock in spec["slots"]:
        start = at(day, clock, spec["zone"])
        pair = [each for each in desk.events(start, start + timedelta(minutes=60)) if has_time(each)]
        if spec["level"] == "medium":
            loser = min(pair, key=lambda event: len(event["attendees"]))
            desk.answer(loser, "declined")
            continue
        outside = [any(not g["email"].endswith(f"@{home}") for g in each["attendees"]) for each in pair]
        loser, stays = pair[outside.index(False)], pair[outside.index(True)]
        if not desk.is_mine(loser):
            desk.answer(loser, "declined")
            continue
        _put_off(spec, desk, loser, stays)
    return "Sorted out."


def _put_off(spec: Spec, desk: Desk, event: Resource, stays: Resource) -> None:
    """To the first time later that day; the meeting itself does not keep its guests busy then."""
    people = [desk.call("users_get", userKey=each["email"]) for each in event["attendees"]]
    begin = max(ends(stays), begins(event) + timedelta(minutes=1))
    start = desk.first_slot(people, begin, minutes_of(event), days=1)
    desk.call("events_patch", calendarId="primary", eventId=event["id"], **when(start, minutes_of(event), spec["zone"]))


def answer_question(spec: Spec, desk: Desk) -> str:
    """Read, reckon, answer."""
    return _ANSWERS[spec["kind"]](spec, desk)


def _taken_part(spec: Spec, desk: Desk, first: Any, last: Any) -> list[Resource]:
    begin = midnight(first, spec["zone"])
    return [
        each
        for each in desk.day_events(first, last, spec["zone"])
        if has_time(each) and desk.my_answer(each) != "declined" and begins(each) >= begin
    ]


def _count(spec: Spec, desk: Desk) -> str:
    return str(len(_taken_part(spec, desk, spec["day"], spec["day"])))


def _start(spec: Spec, desk: Desk) -> str:
    found = desk.all_pages("events_list", calendarId="primary", q=spec["title"])
    event = next(each for each in found if each["summary"] == spec["title"])
    return f"{begins(event).astimezone(ZoneInfo(spec['zone'])):%H:%M}"


def _hours(spec: Spec, desk: Desk) -> str:
    found = _taken_part(spec, desk, spec["first"], spec["last"])
    minutes = sum(minutes_of(each) for each in found if each.get("transparency") != "transparent")
    return f"{minutes / 60:g}"


def _gap(spec: Spec, desk: Desk) -> str:
    me = desk.call("users_get", userKey=desk.user)
    hours = me["workingHours"][DAYS[spec["day"].weekday()]]
    begin, end = (at(spec["day"], clock, spec["zone"]).astimezone(timezone.utc) for clock in hours)
    position, longest = begin, 0
    for start, finish in [*desk.busy([desk.user], begin, end)[desk.user], (end, end)]:
        longest = max(longest, round((start - position).total_seconds() / 60))
        position = max(position, finish)
    return str(longest)


def _slot(spec: Spec, desk: Desk) -> str:
    people = [desk.call("users_get", userKey=desk.user), *(desk.person(name) for name in spec["guests"])]
    start = desk.first_slot(people, spec["begin"], spec["minutes"])
    return f"{start.astimezone(ZoneInfo(spec['zone'])):%Y-%m-%d %H:%M}"


def _busiest(spec: Spec, desk: Desk) -> str:
    begin, end = midnight(spec["day"], spec["zone"]), midnight(spec["day"] + timedelta(days=1), spec["zone"])
    busy = desk.busy(desk.addresses(spec["guests"]), begin, end)
    return str(max(round(sum((last - first).total_seconds() for first, last in spans) / 60) for spans in busy.values()))


def _span(event: Resource, zone: str) -> tuple[datetime, datetime]:
    """When it blocks; whole days are the user's days."""
    if has_time(event):
        return begins(event), ends(event)
    return midnight(begins(event).date(), zone), midnight(ends(event).date(), zone)


_ANSWERS = {"count": _count, "start": _start, "hours": _hours, "gap": _gap, "slot": _slot, "busiest": _busiest}
