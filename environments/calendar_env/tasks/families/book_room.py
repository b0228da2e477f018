"""Set up a meeting with guests in a room: a named one, any that fits, or the smallest with what is needed."""

from __future__ import annotations

import random
from datetime import timedelta, timezone
from typing import Any

from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import New, same_title
from calendar_env.tasks.people import Room
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_clock, say_day, say_length, say_list
from calendar_env.tasks.world import at, timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me = company.me
    guests = company.colleagues({"easy": 1, "medium": 2, "hard": 3}[level])
    minutes = rng.choice((30, 60, 90))
    day, clock = company.quiet_slot(company.workdays(1, 18), minutes, [me.email, *(each.email for each in guests)])
    start = at(day, clock, me.zone)
    site = [room for room in company.rooms if room.zone == me.zone]
    seats = rng.choice((5, 6, 7, 8, 9, 10))
    feature = rng.choice(("video", "whiteboard", "phone", "projector"))
    occupy(company, rng.sample(site, 2), start, minutes)
    free = [each for each in site if company.world.free([each.email], *_span(start, minutes))]
    spec: dict[str, Any] = {
        "title": company.title(),
        "day": day,
        "clock": clock,
        "minutes": minutes,
        "zone": me.zone,
        "guests": [each.name for each in guests],
        "city": me.city,
        "room": None,
        "seats": None,
        "feature": None,
        "smallest": False,
    }
    if level == "easy":
        allowed = [rng.choice(free)]
        spec["room"] = allowed[0].name
        place = rng.choice((f"in room {allowed[0].name}", f"and book the room {allowed[0].name} for it"))
    elif level == "medium":
        allowed = [each for each in free if each.capacity >= seats]
        spec["seats"] = seats
        place = f"in any room in {me.city} that is free then and holds at least {seats} people"
    else:
        fitting = [each for each in free if each.capacity >= seats and feature in each.features]
        allowed = sorted(fitting, key=lambda each: each.capacity)[:1]
        spec |= {"seats": seats, "feature": feature, "smallest": True}
        place = f"in the smallest room in {me.city} that is free then, holds {seats} people or more and has a {feature}"
        place = place.replace("a video", "video").replace("a whiteboard", "a whiteboard")
    if not allowed:
        raise LookupError("No room fits.")
    when = f"{say_day(rng, day)} at {say_clock(rng, clock)}"
    request = rng.choice(
        (
            f'Set up "{spec["title"]}" with {say_list(spec["guests"])} on {when} for {say_length(rng, minutes)}, '
            f"{place}.",
            f'Invite {say_list(spec["guests"])} to "{spec["title"]}", {when}, {minutes} minutes, {place}.',
        )
    )
    if rng.random() < 0.5:
        request += " A room is booked by inviting it."
    fields = {
        "calendar": me.email,
        "summary": same_title(spec["title"]),
        "start": start,
        "end": start + timedelta(minutes=minutes),
    }
    part = New("the meeting", fields, [each.email for each in guests], [each.email for each in allowed])
    return Draft(company, request, spec, lambda before: [(1.0, part)])


def occupy(company: Company, rooms: list[Room], start: Any, minutes: int) -> None:
    """Have others sit in those rooms around that time."""
    for room in rooms:
        host = company.rng.choice(company.others)
        local = start.astimezone(start.tzinfo)
        begin = (local.astimezone(timezone.utc) - timedelta(minutes=company.rng.choice((0, 15)))).astimezone(
            start.tzinfo
        )
        company.world.event(
            host.email,
            {
                "summary": company.rng.choice(("Board call", "Training", "Candidate day", "Audit")),
                **timed(begin.date(), f"{begin:%H:%M}", minutes, company.me.zone),
                "attendees": [organizer(host), {"email": room.email, "responseStatus": "accepted"}],
            },
        )


def _span(start: Any, minutes: int) -> tuple[Any, Any]:
    begin = start.astimezone(timezone.utc)
    return begin, begin + timedelta(minutes=minutes)
