"""Remove what was entered twice, and nothing that only looks like it."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import Gone, KeepOne
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_day
from calendar_env.tasks.world import timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me = company.me
    monday = company.monday(rng.randint(1, 3))
    days = company.workdays((monday - company.today()).days, (monday - company.today()).days + 4)
    titles = company.titles({"easy": 1, "medium": 2, "hard": 3}[level])
    spec: dict[str, Any] = {"first": days[0], "last": days[-1], "zone": me.zone, "level": level, "title": titles[0]}
    if level == "easy":
        day, clock = rng.choice(days), company.clock()
        keys = [(_entry(company, titles[0], day, clock, 0), "") for _ in range(rng.choice((2, 3)))]
        spec["day"] = day
        goal: Goal = [(1.0, KeepOne("the copies", keys))]
        request = rng.choice(
            (
                f'"{titles[0]}" is in my calendar more than once on {say_day(rng, day)}. Please leave one of them.',
                f"By mistake I have entered {titles[0]} several times on {say_day(rng, day)}. Remove the copies, "
                "one stays.",
            )
        )
        return Draft(company, request, spec, lambda before: goal)
    goal = []
    for index, title in enumerate(titles):
        day, clock = rng.choice(days), company.clock(9, 14)
        crowds = rng.sample(range(4), rng.choice((2, 3)))
        entries = [(crowd, _entry(company, _written(rng, title, level), day, clock, crowd)) for crowd in crowds]
        best = max(entries)[1]
        keys = [(event, "") for _, event in entries if event != best]
        goal = [*goal, (1.0, Gone(f"copies {index + 1}", keys))]
        if level == "hard":
            hour = int(clock[:2])
            _entry(company, title, day, f"{hour + 1:02d}:{clock[3:]}", rng.randint(0, 3))
            _entry(company, title, rng.choice([each for each in days if each != day]), clock, rng.randint(0, 3))
            _entry(company, title, day, clock, 1, minutes=90)
    request = rng.choice(
        (
            f"My calendar has duplicates in the week from {say_day(rng, days[0])} on, Monday to Friday.",
            f"Please clean up the duplicates in my own calendar between {say_day(rng, days[0])} and "
            f"{say_day(rng, days[-1])}, both included.",
        )
    )
    request += (
        " Events that I organise are duplicates of one another if they have the same title (capitals do not "
        "matter), the "
        "same start and the same end. Of each such set keep the one with the most guests and remove the others."
    )
    return Draft(company, request, spec, lambda before: goal)


def _written(rng: random.Random, title: str, level: str) -> str:
    return rng.choice((title, title.upper(), title.lower())) if level == "hard" else title


def _entry(company: Company, title: str, day: date, clock: str, guests: int, minutes: int = 60) -> str:
    me = company.me
    body: dict[str, Any] = {"summary": title, **timed(day, clock, minutes, me.zone)}
    if guests:
        invited = company.rng.sample(company.others, guests)
        others = [{"email": each.email, "responseStatus": "accepted"} for each in invited]
        body["attendees"] = [organizer(me), *others]
    return company.world.event(me.email, body)
