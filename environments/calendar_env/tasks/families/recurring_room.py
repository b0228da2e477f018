"""Find a room for a whole series: a named one, one that is free on every date, or the smallest for a new series."""

from __future__ import annotations

import random
from datetime import timedelta, timezone
from typing import Any

from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.company import Company
from calendar_env.tasks.families.book_room import occupy
from calendar_env.tasks.goals import Changed, Each, New, same_title
from calendar_env.tasks.people import Room
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import NUMBERS, say_clock, say_day, say_list
from calendar_env.tasks.world import at, timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me, world = company.me, company.world
    guests = company.colleagues({"easy": 1, "medium": 3, "hard": 3}[level])
    title, minutes, weeks = company.title(), rng.choice((30, 60)), rng.randint(4, 8)
    first = company.monday(1) + timedelta(days=rng.randrange(5))
    clock = company.clock(10, 14)
    dates = [first + timedelta(weeks=n) for n in range(weeks)]
    seats = rng.choice((4, 5, 6, 7, 8))
    site = [room for room in company.rooms if room.zone == me.zone]
    for room in rng.sample(site, 2):  # taken on one date only, which is easily overlooked
        occupy(company, [room], at(rng.choice(dates), clock, me.zone), minutes)
    free = [room for room in site if _free(company, room, dates, clock, minutes)]
    fit = sorted((each for each in free if each.capacity >= seats), key=lambda each: each.capacity)
    spec: dict[str, Any] = {
        "title": title,
        "level": level,
        "first": first,
        "clock": clock,
        "minutes": minutes,
        "weeks": weeks,
        "zone": me.zone,
        "city": me.city,
        "guests": [each.name for each in guests],
        "seats": seats,
        "room": None,
    }
    body: dict[str, Any] = {
        "summary": title,
        **timed(first, clock, minutes, me.zone),
        "recurrence": [f"RRULE:FREQ=WEEKLY;COUNT={weeks}"],
        "attendees": [organizer(me), *({"email": each.email, "responseStatus": "accepted"} for each in guests)],
    }
    if not free or not fit:
        raise LookupError("No room is free.")
    if level == "hard":
        names = say_list(spec["guests"])
        request = rng.choice(
            (
                f'Set up a weekly series "{title}" with {names}: {NUMBERS[weeks]} times, the first on '
                f"{say_day(rng, first)} at "
                f"{say_clock(rng, clock)}, {minutes} minutes.",
                f'I want a series "{title}" with {names}, weekly from {say_day(rng, first)} on, {weeks} times, at '
                f"{say_clock(rng, clock)} for {minutes} minutes.",
            )
        )
        request += (
            f" Book one room in {me.city} for it: the smallest that holds {seats} people or more and is free on "
            "every date."
        )
        parts = [_new(company, spec, day, [each.email for each in guests], fit[0]) for day in dates]
        goal = [(1.0, Each("the meetings", parts))]
        return Draft(company, request, spec, lambda before: goal)
    event = world.event(me.email, body)
    if level == "easy":
        allowed = [rng.choice(free)]
        spec["room"] = allowed[0].name
        request = rng.choice(
            (
                f'Please book room {allowed[0].name} for all meetings of my series "{title}".',
                f'My series "{title}" needs a room: take {allowed[0].name}, for every date.',
            )
        )
    else:
        allowed = fit
        request = rng.choice(
            (
                f'My series "{title}" has no room yet. Book one room in {me.city} for the whole series, any that '
                "holds at least "
                f"{seats} people and is free on every date.",
                f'Find a room in {me.city} for {seats} people or more that is free at all dates of "{title}" (a '
                "series of "
                "mine), and book it for the series.",
            )
        )
    request += " Nothing else of the series changes."
    choices = {f"room {each.email}": "accepted" for each in allowed}
    rooms = [Changed("a meeting", key, {}, choices) for key in world.keys(event)]
    return Draft(company, request, spec, lambda before: [(1.0, Each("the meetings", rooms))])


def _free(company: Company, room: Room, dates: list[Any], clock: str, minutes: int) -> bool:
    starts = [at(day, clock, company.me.zone).astimezone(timezone.utc) for day in dates]
    return all(company.world.free([room.email], start, start + timedelta(minutes=minutes)) for start in starts)


def _new(company: Company, spec: dict[str, Any], day: Any, guests: list[str], room: Room) -> New:
    start = at(day, spec["clock"], spec["zone"])
    fields = {
        "calendar": company.me.email,
        "summary": same_title(spec["title"]),
        "start": start,
        "end": start + timedelta(minutes=spec["minutes"]),
    }
    return New("a meeting", fields, guests, [room.email])
