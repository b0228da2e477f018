"""Put an event into the user's own calendar: plainly, with guests and a place, or at a time told in another zone."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from calendar_env.tasks.background import running_company
from calendar_env.tasks.goals import New, same_title
from calendar_env.tasks.people import CITIES
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_clock, say_day, say_length, say_list
from calendar_env.tasks.world import at

_PLACES = ("Café Luna", "the roof terrace", "Studio 5", "the client's office", "Gate 2", "the old library")


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    zones = [rng.choice(sorted(CITIES)) for _ in range(1)]
    far = rng.choice([zone for zone in CITIES if zone != zones[0]])
    company = running_company(rng, level, (*zones, far))
    me = company.me
    zone = far if level == "hard" else me.zone
    day, clock, minutes = rng.choice(company.workdays(1, 20)), company.clock(), rng.choice((30, 45, 60, 90))
    guests = company.colleagues({"easy": 0, "medium": 1, "hard": 2}[level])
    if level == "hard" and far not in {each.zone for each in guests}:
        guests[0] = rng.choice([each for each in company.others if each.zone == far and each not in guests])
    spec: dict[str, Any] = {
        "title": company.title(),
        "day": day,
        "clock": clock,
        "minutes": minutes,
        "zone": zone,
        "guests": [each.name for each in guests],
        "location": None if level == "easy" else rng.choice(_PLACES),
        "private": level == "medium" and rng.random() < 0.5,
        "free": level == "hard" and rng.random() < 0.5,
    }
    when, start = f"{say_day(rng, day)} at {say_clock(rng, clock)}", at(day, clock, zone)
    if level == "hard":
        when += f" {CITIES[zone]} time"
    length = say_length(rng, minutes)
    request = rng.choice(
        (
            f'Please add "{spec["title"]}" to my calendar on {when}; it takes {length}.',
            f'Put an event called "{spec["title"]}" into my calendar: {when}, for {length}.',
            f'I need {length} for "{spec["title"]}" on {when}. Please enter it in my own calendar.',
        )
    )
    if guests:
        request += f" Invite {say_list(spec['guests'])}."
    if spec["location"]:
        request += f" The place is {spec['location']}."
    if spec["private"]:
        request += " Mark it as private."
    if spec["free"]:
        request += " It should not block my time: show me as free."
    fields: dict[str, Any] = {
        "calendar": me.email,
        "summary": same_title(spec["title"]),
        "start": start,
        "end": start + timedelta(minutes=minutes),
        "visibility": "private" if spec["private"] else "default",
        "transparency": "transparent" if spec["free"] else "opaque",
    }
    if spec["location"]:
        fields["location"] = same_title(spec["location"])
    goal = [(1.0, New("the event", fields, guests=[each.email for each in guests]))]
    return Draft(company, request, spec, lambda before: goal)
