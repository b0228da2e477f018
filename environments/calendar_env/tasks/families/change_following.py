"""Change a series from a date on: its time, its title, its guests and length; what lies before stays as it was."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.background import invitation, organizer, running_company
from calendar_env.tasks.goals import Changed, Each
from calendar_env.tasks.occurrences import Key
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.snapshot import Snapshot
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_clock, say_day
from calendar_env.tasks.world import at, timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me, world = company.me, company.world
    title, guests = company.title(), company.colleagues(3)
    first, clock, minutes = company.monday(-3) + timedelta(days=rng.randrange(5)), company.clock(9, 12), 30
    ending = rng.choice(("", ";COUNT=24", f";UNTIL={company.monday(20):%Y%m%d}T000000Z"))
    every = "" if level == "easy" else rng.choice(("", ";INTERVAL=2"))
    series = world.event(
        me.email,
        {
            "summary": title,
            **timed(first, clock, minutes, me.zone),
            "recurrence": [f"RRULE:FREQ=WEEKLY{every}{ending}"],
            "attendees": [organizer(me), *(invitation(company, each.email) for each in guests[:2])],
            "location": rng.choice(("", "Kitchen", "Hall 2")),
        },
    )
    step = timedelta(weeks=2 if every else 1)
    if level != "easy":
        world.exception(series, at(first, clock, me.zone), timed(first + timedelta(days=1), clock, minutes, me.zone))
    day = first
    while day < company.today() + timedelta(days=5):
        day += step
    day += step * rng.randint(0, 2)
    new_clock = rng.choice([f"{hour:02d}:{half}" for hour in range(13, 17) for half in ("00", "30")])
    new_minutes = minutes if level != "hard" else rng.choice((45, 60))
    new_title = title if level != "medium" else f"{title} (new format)"
    spec: dict[str, Any] = {
        "title": title,
        "day": day,
        "clock": new_clock,
        "minutes": new_minutes,
        "zone": me.zone,
        "new_title": new_title,
        "leaves": guests[0].name if level == "hard" else None,
        "joins": guests[2].name if level == "hard" else None,
    }
    request = rng.choice(
        (
            f'From {say_day(rng, day)} on, "{title}" starts at {say_clock(rng, new_clock)}.',
            f'Beginning with {say_day(rng, day)}, all further meetings of "{title}" are at '
            f"{say_clock(rng, new_clock)}.",
            f'Please change "{title}": as of {say_day(rng, day)} and for all dates after it, it is at '
            f"{say_clock(rng, new_clock)}.",
        )
    )
    request += " The weekday stays."
    if level == "medium":
        request += f' From then on it is called "{new_title}".'
    if level == "hard":
        request += (
            f" From then on it takes {new_minutes} minutes; {guests[0].name} leaves it and {guests[2].name} joins."
        )
    else:
        request += f" It still takes {minutes} minutes."
    request += " Meetings before that date stay exactly as they are, and the series ends when it did before."

    def wanted_of(key: Key) -> dict[str, Any]:
        start = at(_start_of(key, me.zone).date(), new_clock, me.zone)
        wanted: dict[str, Any] = {"start": start, "end": start + timedelta(minutes=new_minutes)}
        if new_title != title:
            wanted["summary"] = new_title
        if level == "hard":
            wanted |= {f"guest {guests[0].email}": None, f"guest {guests[2].email}": "invited"}
        return wanted

    later = [key for key in world.keys(series) if _start_of(key, me.zone).date() >= day]
    parts = [Changed("a meeting", key, wanted_of(key)) for key in later]
    meetings = Each("the meetings from then on", parts)

    def goal(before: Snapshot) -> Goal:
        """Also what lies beyond the weeks that matter, which is looked at where the series was changed."""
        far = [Changed("a later meeting", key, wanted_of(key)) for key in sorted(before.far) if key[0] == series]
        return [(1.0, meetings), (0.25, Each("the series' end", far))] if far else [(1.0, meetings)]

    return Draft(company, request, spec, goal)


def _start_of(key: tuple[str, str], zone: str) -> datetime:
    return datetime.fromisoformat(key[1]).astimezone(ZoneInfo(zone))
