"""Resolve double bookings by a rule: who goes, who stays, and what of the user's own is moved."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks import people as words
from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.busy import midnight
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import Changed
from calendar_env.tasks.people import Person
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.slots import first_slot
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_clock, say_day, say_list
from calendar_env.tasks.world import at, timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me = company.me
    pairs = {"easy": 1, "medium": 2, "hard": 3}[level]
    days = rng.sample(company.workdays(2, 16), pairs)
    own_pair = rng.randrange(pairs) if level == "hard" else None
    goal: Goal = []
    spec: dict[str, Any] = {"level": level, "zone": me.zone, "slots": []}
    told: list[str] = []
    titles = company.titles(2 * pairs)
    for index, day in enumerate(days):
        _, clock = company.quiet_slot([day], 90, [me.email], first=10, last=14)
        spec["slots"].append((day, clock))
        told.append(f"{say_day(rng, day)} at {say_clock(rng, clock)}")
        keep, lose = titles[2 * index : 2 * index + 2]
        later = rng.choice((0, 30))
        if level == "medium":
            crowd = rng.sample(company.others, 6)
            _invitation(company, keep, day, clock, crowd[:4])
            lost = _invitation(company, lose, day, _later(clock, later), crowd[4:])
        else:
            hosts = company.colleagues(2)
            customer = (
                f"{rng.choice(('sales', 'office', 'team'))}@{rng.choice(words.CUSTOMERS).split()[0].lower()}.example"
            )
            _invitation(company, keep, day, clock, hosts[:1], customer)
            if index == own_pair:
                lost = _own(company, lose, day, _later(clock, later), hosts[1])
                goal = [*goal, (1.0, _moved(company, lost, day, _later(clock, 60), [me, hosts[1]]))]
                continue
            lost = _invitation(company, lose, day, _later(clock, later), hosts[1:])
        goal = [*goal, (1.0, Changed(f"reply {index + 1}", (lost, ""), {f"guest {me.email}": "declined"}))]
    request = rng.choice(
        (
            f"I am double-booked on {say_list(told)}.",
            f"Two meetings overlap on {say_list(told)}. Please sort that out.",
            f"There is a clash in my calendar on {say_list(told)}.",
        )
    )
    if level == "medium":
        request += " Of each two, decline the invitation with fewer people on it; leave the other as it is."
    else:
        request += (
            f" The meeting with somebody from outside the company stays as it is; decline the other one"
            f"{', if it was another who invited me' if level == 'hard' else ''}."
        )
    if level == "hard":
        request += (
            " If the other one is mine, do not cancel it: move it to the first full or half hour later that day (not "
            "before the meeting that stays is over) when its guest and I are both free and within the working hours of "
            "both; its length stays."
        )
    return Draft(company, request, spec, lambda before: goal)


def _later(clock: str, minutes: int) -> str:
    moment = datetime.strptime(clock, "%H:%M") + timedelta(minutes=minutes)
    return f"{moment:%H:%M}"


def _invitation(
    company: Company, title: str, day: Any, clock: str, others: list[Person], outside: str | None = None
) -> str:
    """A meeting of an hour that the acting user was invited to by the first of the others."""
    me = company.me
    attendees = [organizer(others[0]), *({"email": each.email, "responseStatus": "accepted"} for each in others[1:])]
    attendees.append({"email": me.email, "responseStatus": company.rng.choice(("accepted", "needsAction"))})
    if outside:
        attendees.append({"email": outside, "responseStatus": "accepted"})
    body = {"summary": title, **timed(day, clock, 60, me.zone), "attendees": attendees}
    return company.world.event(others[0].email, body)


def _own(company: Company, title: str, day: Any, clock: str, guest: Person) -> str:
    me = company.me
    attendees = [organizer(me), {"email": guest.email, "responseStatus": "accepted"}]
    return company.world.event(me.email, {"summary": title, **timed(day, clock, 30, me.zone), "attendees": attendees})


def _moved(company: Company, event: str, day: Any, clock: str, people: list[Person]) -> Changed:
    zone = company.me.zone
    end_of_day = midnight(day + timedelta(days=1), zone).astimezone(timezone.utc)
    begin = at(day, clock, zone).astimezone(timezone.utc)
    start = first_slot(company.world, people, begin, 30, days=1, until=end_of_day).astimezone(ZoneInfo(zone))
    return Changed("the own meeting", (event, ""), {"start": start, "end": start + timedelta(minutes=30)})
