"""Move a meeting of the user's: to another time, to another day with its room, or to where its room is taken."""

from __future__ import annotations

import random
from datetime import timedelta, timezone
from typing import Any

from calendar_env.tasks.background import invitation, organizer, running_company
from calendar_env.tasks.families.book_room import occupy
from calendar_env.tasks.goals import Changed
from calendar_env.tasks.message_goals import Mailed
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_clock, say_day
from calendar_env.tasks.world import Body, at, timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me, world = company.me, company.world
    guests = company.colleagues({"easy": 1, "medium": 2, "hard": 3}[level])
    minutes = rng.choice((30, 45, 60, 90))
    days = company.workdays(1, 18)
    old_day, old_clock = company.quiet_slot(days, minutes, [me.email])
    new_day = old_day if level == "easy" else rng.choice([day for day in days if day != old_day])
    new_clock = rng.choice([f"{hour:02d}:{half}" for hour in range(9, 17) for half in ("00", "30")])
    if new_day == old_day and new_clock == old_clock:
        raise LookupError("Nothing to move.")
    title = company.title()
    body: Body = {
        "summary": title,
        **timed(old_day, old_clock, minutes, me.zone),
        "attendees": [organizer(me), *(invitation(company, each.email) for each in guests)],
        "description": rng.choice(("", "Please read the draft first.", "Dial-in as always.")),
    }
    start = at(new_day, new_clock, me.zone)
    begin = start.astimezone(timezone.utc)
    end = begin + timedelta(minutes=minutes)
    wanted: dict[str, Any] = {"start": start, "end": end}
    any_of: dict[str, Any] = {}
    spec: dict[str, Any] = {
        "title": title,
        "old_day": old_day,
        "day": new_day,
        "clock": new_clock,
        "zone": me.zone,
        "tell": level != "easy" and rng.random() < 0.5,
        "quiet": level == "easy" and rng.random() < 0.5,
        "new_room": False,
        "city": me.city,
    }
    if level != "easy":
        site = [room for room in company.rooms if room.zone == me.zone]
        old_span = at(old_day, old_clock, me.zone).astimezone(timezone.utc)
        fit = [each for each in site if each.capacity > len(guests)]
        free = [each for each in fit if world.free([each.email], old_span, old_span + timedelta(minutes=minutes))]
        room = rng.choice(free)
        body["attendees"].append({"email": room.email, "responseStatus": "accepted"})
        if level == "hard":
            occupy(company, [room], start, minutes)
            if rng.random() < 0.5:
                occupy(company, [rng.choice([each for each in fit if each is not room])], start, minutes)
            spec["new_room"] = True
            wanted[f"room {room.email}"] = None
            any_of = {
                f"room {each.email}": "accepted"
                for each in fit
                if each is not room and world.free([each.email], begin, end)
            }
            if not any_of:
                raise LookupError("No other room.")
        elif world.free([room.email], begin, end):
            wanted[f"room {room.email}"] = "accepted"
        else:
            raise LookupError("The room is taken.")
    event = world.event(me.email, body)
    when = say_clock(rng, new_clock) + ("" if new_day == old_day else f" on {say_day(rng, new_day)}")
    request = rng.choice(
        (
            f'Please move "{title}" on {say_day(rng, old_day)} to {when}.',
            f'"{title}" ({say_day(rng, old_day)}) has to be at {when} instead. Please reschedule it.',
            f'Can you shift my meeting "{title}" of {say_day(rng, old_day)} so that it starts at {when}?',
        )
    )
    request += " Its length stays as it is."
    if level == "medium":
        request += " It keeps its room."
    if level == "hard":
        request += (
            f" Its room is taken then: give it another room in {me.city} instead, one that is free and holds all "
            "who are "
            f"on it, me included ({len(guests) + 1} people)."
        )
    goal: Goal = [(0.8, Changed("the meeting", (event, ""), wanted, any_of))]
    if spec["tell"]:
        request += " Let the guests know by mail."
        goal = [*goal, (0.2, Mailed("mail", [each.email for each in guests]))]
    if spec["quiet"]:
        request += " Send nobody mail about it."
    return Draft(company, request, spec, lambda before: goal, quiet=spec["quiet"])
