"""The user is away: say so in the calendar, decline invitations, and cancel or put off the user's own meetings."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.busy import midnight
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import Changed, Each, Gone, New, Part, same_title
from calendar_env.tasks.occurrences import Key
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.snapshot import Fields, Snapshot, preview
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_day
from calendar_env.tasks.world import timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me = company.me
    monday = company.monday(rng.randint(1, 2))
    length = {"easy": 1, "medium": 2, "hard": 3}[level]
    first = monday + timedelta(days=rng.randrange(6 - length))
    last = first + timedelta(days=length - 1)
    days = [first + timedelta(days=n) for n in range(length)]
    _fill(company, days, own={"easy": 0, "medium": 2, "hard": 2}[level])
    title = rng.choice(("Out of office", "Away", "On leave", "Annual leave"))
    spec: dict[str, Any] = {"title": title, "first": first, "last": last, "zone": me.zone, "level": level}
    when = (
        f"on {say_day(rng, first)}"
        if length == 1
        else f"from {say_day(rng, first)} to {say_day(rng, last)}, both included"
    )
    request = rng.choice(
        (
            f"I am out of the office {when}.",
            f"I will be away {when}.",
            f"I take leave {when}.",
        )
    )
    request += (
        f' Enter one all-day event "{title}" of type outOfOffice over that time in my calendar, and decline every '
        "meeting "
        "then to which others have invited me and that I have not declined yet (of series only the meetings in "
        "that time)."
    )
    if level == "medium":
        request += " Cancel the meetings with guests that I organise myself in that time."
    if level == "hard":
        request += (
            " Meetings with guests that I organise myself in that time are put off by exactly one week: same "
            "weekday and "
            "time, seven days later."
        )
    request += " Leave everything else in my calendar alone."

    def goal(before: Snapshot) -> Goal:
        return _goal(before, company, spec)

    if not goal(preview(company.world, me.email)):
        raise LookupError("Nothing to do.")
    return Draft(company, request, spec, goal)


def _goal(before: Snapshot, company: Company, spec: dict[str, Any]) -> Goal:
    me, zone = company.me, spec["zone"]
    begin, end = midnight(spec["first"], zone), midnight(spec["last"] + timedelta(days=1), zone)
    invited: list[Part] = []
    own: list[Part] = []
    mine = f"guest {me.email}"
    for key, fields in sorted(before.occurrences.items()):
        if fields["whole days"] or not (fields["start"] < end and fields["end"] > begin):
            continue
        if fields.get(mine, "declined") != "declined":
            invited.append(Changed("an invitation", key, {mine: "declined"}))
        elif fields["calendar"] == me.email and any(name.startswith("guest ") for name in fields):
            own.append(_own_part(key, fields, zone, spec["level"]))
    away = {
        "calendar": me.email,
        "summary": same_title(spec["title"]),
        "start": _day_in_utc(spec["first"]),
        "end": _day_in_utc(spec["last"] + timedelta(days=1)),
        "whole days": True,
        "eventType": "outOfOffice",
    }
    goal: Goal = [(0.3, New("the absence", away)), (0.4, Each("invitations", invited))]
    return [*goal, (0.3, Each("own meetings", own))] if spec["level"] != "easy" else goal


def _own_part(key: Key, fields: Fields, zone: str, level: str) -> Part:
    if level == "medium":
        return Gone("an own meeting", [key])
    local = fields["start"].astimezone(ZoneInfo(zone))
    start = local + timedelta(days=7)
    return Changed("an own meeting", key, {"start": start, "end": start + (fields["end"] - fields["start"])})


def _day_in_utc(day: date) -> Any:
    return midnight(day, "UTC")


def _fill(company: Company, days: list[date], own: int) -> None:
    """Meetings on those days: two invitations at least, and so many of the user's own."""
    rng, me, world = company.rng, company.me, company.world
    for _ in range(2 + len(days) // 2):
        host, day = rng.choice(company.others), rng.choice(days)
        me_as_guest = {"email": me.email, "responseStatus": rng.choice(("accepted", "needsAction", "tentative"))}
        body = {"summary": company.title(), **timed(day, company.clock(), 60, me.zone)}
        world.event(host.email, {**body, "attendees": [organizer(host), me_as_guest]})
    for _ in range(own):
        guest = rng.choice(company.others)
        attendees = [organizer(me), {"email": guest.email, "responseStatus": "accepted"}]
        body = {"summary": company.title(), **timed(rng.choice(days), company.clock(), 45, me.zone)}
        world.event(me.email, {**body, "attendees": attendees})
    body = {"summary": "Write report", **timed(rng.choice(days), company.clock(), 60, me.zone)}
    world.event(me.email, body)
