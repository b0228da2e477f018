"""Put right what was entered on the wrong clock: one event, all that are marked, or a series over a clock change."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.background import invitation, organizer, running_company
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import Changed, Each
from calendar_env.tasks.people import CITIES
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_day
from calendar_env.tasks.world import at, timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    own = rng.choice(sorted(CITIES))
    meant = rng.choice([zone for zone in CITIES if zone != own])
    company = running_company(rng, level, (own, meant))
    city = CITIES[meant]
    guest = next(each for each in company.others if each.zone == meant)
    spec: dict[str, Any] = {
        "level": level,
        "zone": meant,
        "own_zone": own,
        "tag": f"[{city}]",
        "today": company.today(),
    }
    if level == "easy":
        title, day, clock = company.title(), rng.choice(company.workdays(2, 20)), company.clock()
        event = _wrong(company, title, day, clock, guest.email)
        spec |= {"title": title, "day": day}
        request = rng.choice(
            (
                f'"{title}" on {say_day(rng, day)} is in my calendar at {clock} {CITIES[own]} time, but {clock} '
                f"in {city} was "
                "meant. Please correct it.",
                f'I entered "{title}" ({say_day(rng, day)}) for {clock} here, when {guest.name} meant {clock} '
                f"{city} time on "
                "that day. Please put it right.",
            )
        )
        goal: Goal = [(1.0, _corrected(company, event, meant, "the event"))]
    elif level == "medium":
        goal = []
        for index, title in enumerate(company.titles(3)):
            title = f"{title} [{city}]"
            event = _wrong(company, title, rng.choice(company.workdays(2, 20)), company.clock(), guest.email)
            goal = [*goal, (1.0, _corrected(company, event, meant, f"event {index + 1}"))]
        for title in company.titles(2):
            _wrong(company, title, rng.choice(company.workdays(2, 20)), company.clock(), guest.email)
        request = rng.choice(
            (
                f"All my events from tomorrow on with [{city}] in the title were entered with the right date and "
                "time of day, "
                f"but on the clock of {CITIES[own]}. They are meant on that of {city}.",
                f"From tomorrow on, events of mine marked [{city}] stand at {CITIES[own]} time. The same dates "
                "and times of "
                f"day were meant in {city} time. Please correct them all.",
            )
        )
    else:
        title, clock = company.title(), company.clock()
        first = company.monday(1) + timedelta(days=rng.randrange(5))
        event = _wrong(company, title, first, clock, guest.email, weeks=rng.randint(6, 12))
        spec |= {"title": title, "first": first}
        request = rng.choice(
            (
                f'The series "{title}" (first on {say_day(rng, first)}) was set up at {clock} {CITIES[own]} time. '
                "It should be "
                f"at {clock} {city} time.",
                f'"{title}", a series from {say_day(rng, first)} on, follows the clock of {CITIES[own]} by '
                f"mistake; {clock} in "
                f"{city} was meant.",
            )
        )
        request += (
            f" All its dates stay, and on each it must be {clock} in {city}, also after clocks change there or here."
        )
        goal = [(1.0, _corrected(company, event, meant, "the series"))]
    return Draft(company, request + " Lengths and guests stay.", spec, lambda before: goal)


def _wrong(company: Company, title: str, day: Any, clock: str, guest: str, weeks: int = 1) -> str:
    me = company.me
    body: dict[str, Any] = {
        "summary": title,
        **timed(day, clock, company.rng.choice((30, 60)), me.zone),
        "attendees": [organizer(me), invitation(company, guest)],
    }
    if weeks > 1:
        body["recurrence"] = [f"RRULE:FREQ=WEEKLY;COUNT={weeks}"]
    return company.world.event(me.email, body)


def _corrected(company: Company, event: str, meant: str, name: str) -> Each:
    """The same days and times of day, on the clock that was meant."""
    parts: list[Changed] = []
    for each in company.world.occurrences():
        if each.key[0] == event:
            local: datetime = each.start.astimezone(ZoneInfo(company.me.zone))
            start = at(local.date(), f"{local:%H:%M}", meant)
            parts.append(Changed(name, each.key, {"start": start, "end": start + (each.end - each.start)}))
    return Each(name, parts)
