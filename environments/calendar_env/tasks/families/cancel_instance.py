"""Cancel single meetings of series and nothing else: one date, a week away, or whatever falls on a public holiday."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from calendar_env.tasks.background import invitation, organizer, running_company
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import Each, Gone
from calendar_env.tasks.message_goals import Mailed
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_day
from calendar_env.tasks.world import all_day, at, timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    titles = company.titles(2 if level == "medium" else 1)
    guests = company.colleagues(2)
    series = [_series(company, title, [each.email for each in guests], daily=level != "easy") for title in titles]
    dates = [
        occurrence
        for occurrence in sorted(company.world.occurrences(), key=lambda each: each.start)
        if occurrence.key[0] in series
    ]
    local = {each.key: each.start.astimezone(company.now.tzinfo).date() for each in dates}
    spec: dict[str, Any] = {
        "titles": titles,
        "level": level,
        "zone": company.me.zone,
        "tell": False,
        "today": company.today(),
    }
    if level == "easy":
        day = rng.choice([day for day in local.values() if day > company.today() + timedelta(days=1)][:6])
        gone = [key for key, each in local.items() if each == day]
        spec["days"] = [day]
        request = rng.choice(
            (
                f'"{titles[0]}" does not take place on {say_day(rng, day)}. Please cancel that one meeting only.',
                f"Cancel the {titles[0]} on {say_day(rng, day)}; all other dates of the series stay.",
                f'Please take "{titles[0]}" out of the calendars for {say_day(rng, day)}, just this once.',
            )
        )
    elif level == "medium":
        monday = company.monday(rng.randint(1, 4))
        first, last = monday + timedelta(days=rng.randrange(2)), monday + timedelta(days=rng.randint(3, 4))
        gone = [key for key, day in local.items() if first <= day <= last]
        spec |= {"days": [first + timedelta(days=n) for n in range((last - first).days + 1)], "tell": True}
        request = rng.choice(
            (
                f"I am away from {say_day(rng, first)} to {say_day(rng, last)} (both included). Cancel "
                f'"{titles[0]}" and '
                f'"{titles[1]}" on those days, and let the guests know by mail. The series themselves go on.',
                f"Between {say_day(rng, first)} and {say_day(rng, last)}, these days included, neither "
                f'"{titles[0]}" nor '
                f'"{titles[1]}" takes place. Please cancel these meetings only and mail the guests about it.',
            )
        )
    else:
        calendar, days = public_holidays(company)
        horizon = company.today() + timedelta(weeks=8)
        gone = [key for key, day in local.items() if day in days and company.today() < day <= horizon]
        spec |= {"calendar": calendar, "until": horizon}
        request = rng.choice(
            (
                f'Cancel every meeting of "{titles[0]}" that falls on a day in the calendar "Public holidays", from '
                f"tomorrow to {say_day(rng, horizon)}.",
                f'"{titles[0]}" must not take place on public holidays (there is a calendar "Public holidays"). Please '
                f"cancel those dates from tomorrow up to and including {say_day(rng, horizon)}.",
            )
        )
        request += f" Its id is {calendar}."
    if not gone:
        raise LookupError("Nothing to cancel.")
    goal: Goal = [(0.8, Each("the meetings", [Gone("a meeting", [key]) for key in gone]))]
    if spec["tell"]:
        goal = [*goal, (0.2, Mailed("mail", [each.email for each in guests]))]
    return Draft(company, request, spec, lambda before: goal)


def public_holidays(company: Company, *, weeks: int = 8) -> tuple[str, list[Any]]:
    """A calendar of three public holidays on weekdays, some weeks from now, that all may read; and its days."""
    calendar = company.world.calendar(
        f"holidays@{company.domain}", "Public holidays", company.others[1].email, zone=company.me.zone
    )
    company.world.rule(calendar, "domain", company.domain, "reader")
    company.world.list_entry(company.me.email, calendar)
    days = company.rng.sample(company.workdays(2, weeks * 7 + 5), 4)
    for name, day in zip(("Founders' day", "Spring holiday", "Harvest day", "Bank holiday"), days, strict=True):
        company.world.event(calendar, {"summary": name, "transparency": "transparent", **all_day(day)})
    return calendar, days


def _series(company: Company, title: str, guests: list[str], *, daily: bool) -> str:
    """A series of the acting user's that has lived: one past date was cancelled, and one moved."""
    rng, me = company.rng, company.me
    first = company.monday(-2)
    clock = company.clock(10, 15)
    days = rng.choice(("MO,TU,WE,TH,FR", "MO,WE,FR", "MO,TU,TH,FR")) if daily else rng.choice(("MO", "MO,TH", "MO,WE"))
    end = rng.choice(("", ";COUNT=90", f";UNTIL={company.monday(14):%Y%m%d}T000000Z"))
    series = company.world.event(
        me.email,
        {
            "summary": title,
            **timed(first, clock, rng.choice((30, 45)), me.zone),
            "recurrence": [f"RRULE:FREQ=WEEKLY;BYDAY={days}{end}"],
            "attendees": [organizer(me), *(invitation(company, each) for each in guests)],
        },
    )
    company.world.exception(series, at(first + timedelta(weeks=1), clock, me.zone), {"status": "cancelled"})
    return series
