"""Meet at the first time at which all are free and at work, over one, two or three time zones."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.busy import midnight
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import New, same_title
from calendar_env.tasks.people import Person
from calendar_env.tasks.slots import first_slot
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_length, say_list
from calendar_env.tasks.world import Body, timed

ZONES = {
    "easy": (("Europe/Berlin",), ("America/New_York",), ("Asia/Kolkata",), ("Australia/Sydney",)),
    "medium": (
        ("Europe/Berlin", "America/New_York"),
        ("Asia/Kolkata", "Europe/London"),
        ("Australia/Sydney", "Asia/Singapore"),
        ("Europe/Berlin", "Asia/Kolkata"),
    ),
    "hard": (
        ("Europe/Berlin", "Europe/London", "Asia/Kolkata"),
        ("Asia/Kolkata", "Europe/Berlin", "Asia/Singapore"),
        ("America/New_York", "Europe/London", "Europe/Berlin"),
        ("Australia/Sydney", "Asia/Singapore", "Asia/Kolkata"),
    ),
}
"""Zones of people whose working hours overlap."""


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    zones = rng.choice(ZONES[level])
    company = running_company(rng, level, zones)
    me = company.me
    guests = invited(company, zones, {"easy": 1, "medium": 2, "hard": 3}[level])
    minutes = rng.choice((30, 45, 60))
    begin = midnight(company.today() + timedelta(days=1), me.zone)
    for _ in range(rng.randint(0, 2)):
        obstruct(company, [me, *guests], first_slot(company.world, [me, *guests], begin, minutes), minutes)
    start = first_slot(company.world, [me, *guests], begin, minutes)
    spec: dict[str, Any] = {
        "title": company.title(),
        "guests": [each.name for each in guests],
        "minutes": minutes,
        "begin": begin,
    }
    names, length = say_list(spec["guests"]), say_length(rng, minutes)
    request = rng.choice(
        (
            f'Find the first slot from tomorrow on when {names} and I are all free, and set up "{spec["title"]}" there '
            f"for {length} with all of us.",
            f'Please schedule "{spec["title"]}" ({length}) with {names} as early as possible, tomorrow at the '
            "earliest. "
            "Everybody, me too, must be free.",
            f'{names} and I need {length} together for "{spec["title"]}". Book the earliest time at which nobody is '
            "busy, beginning with tomorrow.",
        )
    )
    request += (
        " It must lie within everyone's working hours in their own time zones (the directory has them) and start on a "
        "full or half hour."
    )
    fields = {
        "calendar": me.email,
        "summary": same_title(spec["title"]),
        "start": start,
        "end": start + timedelta(minutes=minutes),
    }
    part = New("the meeting", fields, [each.email for each in guests])
    return Draft(company, request, spec, lambda before: [(1.0, part)])


def invited(company: Company, zones: tuple[str, ...], count: int) -> list[Person]:
    """So many colleagues: one of each zone but the acting user's, and others of these zones.

    Raises:
        LookupError: There are not so many.
    """
    found = [company.rng.choice([each for each in company.others if each.zone == zone]) for zone in zones[1:]]
    rest = [each for each in company.others if each.zone in zones and each not in found]
    if len(rest) < count - len(found):
        raise LookupError("Too few people in these zones.")
    return found + company.rng.sample(rest, count - len(found))


def obstruct(company: Company, people: list[Person], start: Any, minutes: int) -> None:
    """Put something where they could have met: what blocks the time, or what only looks as if it did."""
    rng = company.rng
    who = rng.choice(people)
    local = start.astimezone(ZoneInfo(who.zone))
    body: Body = timed(local.date(), f"{local:%H:%M}", minutes, who.zone)
    host = rng.choice([each for each in company.people if each is not who])
    kind = rng.choice(("private", "unanswered", "declined", "transparent"))
    if kind == "private":
        company.world.event(who.email, {**body, "summary": "Personal", "visibility": "private"})
    elif kind == "transparent":
        company.world.event(who.email, {**body, "summary": "Reminder: timesheet", "transparency": "transparent"})
    else:
        response = "declined" if kind == "declined" else "tentative"
        guest = {"email": who.email, "responseStatus": response}
        if host not in people:
            body = {**body, "summary": "Vendor fair", "attendees": [organizer(host), guest]}
            company.world.event(host.email, body)
