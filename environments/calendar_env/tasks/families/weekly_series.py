"""Make a series: so many weeks, days left out, or at another zone's clock with public holidays left out."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

from calendar_env.tasks.background import running_company
from calendar_env.tasks.busy import DAYS
from calendar_env.tasks.families.cancel_instance import public_holidays
from calendar_env.tasks.goals import Each, New, same_title
from calendar_env.tasks.people import CITIES
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import NUMBERS, say_clock, say_day, say_list
from calendar_env.tasks.world import at

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    own = rng.choice(sorted(CITIES))
    far = rng.choice(("America/New_York", "Europe/Berlin", "Australia/Sydney", "Europe/London"))
    if own == far:
        raise LookupError("The far zone must be another.")
    company = running_company(rng, level, (own, far))
    me = company.me
    zone = far if level == "hard" else me.zone
    guests = company.colleagues({"easy": 1, "medium": 2, "hard": 2}[level])
    clock, minutes, title = company.clock(9, 15), rng.choice((30, 45, 60)), company.title()
    weekdays = sorted(rng.sample(range(5), 1 if level == "easy" else 2))
    first = company.monday(1) + timedelta(days=weekdays[0])
    names = " and ".join(_WEEKDAYS[day] for day in weekdays)
    spec: dict[str, Any] = {
        "title": title,
        "guests": [each.name for each in guests],
        "clock": clock,
        "minutes": minutes,
        "zone": zone,
        "weekdays": [DAYS[day] for day in weekdays],
        "first": first,
        "count": None,
        "until": None,
        "skip": [],
        "holidays": None,
    }
    who, start = say_list(spec["guests"]), say_clock(rng, clock)
    if level == "easy":
        spec["count"] = count = rng.randint(4, 10)
        dates = [first + timedelta(weeks=n) for n in range(count)]
        request = rng.choice(
            (
                f'Set up a weekly meeting "{title}" with {who}: every {names} at {start}, {minutes} minutes, '
                f"{NUMBERS[count]} times, the first one on {say_day(rng, first)}.",
                f"I want to meet {who} every {names} at {start} for {minutes} minutes, beginning on "
                f"{say_day(rng, first)}, "
                f'{count} meetings in all. Please make it a series "{title}".',
            )
        )
    else:
        last = company.monday(1) + timedelta(weeks=rng.randint(5, 11), days=4)
        spec["until"] = last
        every = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        dates = [day for day in every if day.weekday() in weekdays]
        place = f" {CITIES[zone]} time" if level == "hard" else ""
        request = rng.choice(
            (
                f'Set up a series "{title}" with {who}: every {names} at {start}{place} for {minutes} minutes, from '
                f"{say_day(rng, first)} to {say_day(rng, last)}, both included.",
                f'Please enter "{title}" as a series on every {names}, {start}{place}, {minutes} minutes, the first on '
                f"{say_day(rng, first)} and none after {say_day(rng, last)}. Invite {who}.",
            )
        )
        if level == "medium":
            spec["skip"] = skip = sorted(rng.sample(dates[1:], 2))
            request += f" Leave out {say_day(rng, skip[0])} and {say_day(rng, skip[1])}."
        else:
            request += f" Dates and times are those of {CITIES[zone]}, also when clocks change there or here."
            calendar, holidays = public_holidays(company)
            skip = [day for day in dates if day in holidays]
            if not skip or first in skip:
                raise LookupError("No holiday falls on the series.")
            spec["holidays"] = calendar
            request += f' Leave out dates that are in the calendar "Public holidays" ({calendar}).'
        dates = [day for day in dates if day not in skip]
    request += " It belongs into my own calendar."
    goal = [(1.0, Each("the meetings", [_meeting(spec, day, me.email, [g.email for g in guests]) for day in dates]))]
    return Draft(company, request, spec, lambda before: goal)


def _meeting(spec: dict[str, Any], day: date, calendar: str, guests: list[str]) -> New:
    start = at(day, spec["clock"], spec["zone"])
    fields = {
        "calendar": calendar,
        "summary": same_title(spec["title"]),
        "start": start,
        "end": start + timedelta(minutes=spec["minutes"]),
    }
    return New("a meeting", fields, guests)
