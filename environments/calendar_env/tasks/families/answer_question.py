"""Answer a question about calendars: how many, how long, when. Nothing may be changed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.background import invitation, organizer, running_company
from calendar_env.tasks.busy import busy_spans, midnight, takes_part
from calendar_env.tasks.company import Company
from calendar_env.tasks.families.find_slot import ZONES, invited, obstruct
from calendar_env.tasks.message_goals import Answer
from calendar_env.tasks.occurrences import Occurrence
from calendar_env.tasks.slots import first_slot
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_day, say_list
from calendar_env.tasks.world import timed

_NUMBER = re.compile(r"(?<![\w.:-])\d+(?:\.\d+)?(?![\w:-]|\.\d)")
_CLOCK = re.compile(r"(?<!\d)\d{1,2}:\d{2}(?!\d)")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")


def number_in(message: str) -> float | None:
    """The only number in a message."""
    found = {float(each) for each in _NUMBER.findall(message)}
    return found.pop() if len(found) == 1 else None


def clock_in(message: str) -> str | None:
    """The only time of day in a message, as "HH:MM"."""
    found = {each.zfill(5) for each in _CLOCK.findall(message)}
    return found.pop() if len(found) == 1 else None


def moment_in(message: str) -> str | None:
    """The only date with a time in a message, as "YYYY-MM-DD HH:MM"."""
    found = {each.replace("T", " ") for each in _MOMENT.findall(message)}
    return found.pop() if len(found) == 1 else None


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    kinds = {"easy": (_count, _start_here), "medium": (_hours, _longest_gap), "hard": (_first_slot, _busiest)}
    return rng.choice(kinds[level])(rng, level)


def _asked(company: Company, request: str, spec: dict[str, Any], read: Callable[[str], Any], value: Any) -> Draft:
    goal = [(1.0, Answer("the answer", read, value))]
    return Draft(company, request, spec, lambda before: goal)


def _count(rng: random.Random, level: str) -> Draft:
    company = running_company(rng, level)
    day = rng.choice(company.workdays(1, 12))
    _more(company, [day], rng.randint(1, 5))
    value = float(len(_taken_part(company, day, day)))
    request = rng.choice(
        (
            f"How many meetings do I have on {say_day(rng, day)}?",
            f"Tell me the number of events in my calendar on {say_day(rng, day)}.",
        )
    )
    request += (
        " Count every event with a start time in my own calendar that I have not declined; all-day events do not "
        "count. "
        "Answer with the number alone, as the message of finish."
    )
    return _asked(company, request, {"kind": "count", "day": day, "zone": company.me.zone}, number_in, value)


def _start_here(rng: random.Random, level: str) -> Draft:
    zones = rng.choice((("Europe/Berlin", "America/New_York"), ("Asia/Kolkata", "Europe/London"),
                        ("Australia/Sydney", "Asia/Kolkata"), ("America/New_York", "Europe/London")))  # fmt: skip
    company = running_company(rng, level, zones)
    host = next(each for each in company.others if each.zone == zones[1])
    title, day = company.title(), rng.choice(company.workdays(2, 18))
    clock = rng.choice(("09:15", "10:45", "11:30", "14:15", "15:45", "16:30"))
    attendees = [organizer(host), {"email": company.me.email, "responseStatus": "accepted"}]
    event = company.world.event(
        host.email, {"summary": title, **timed(day, clock, 30, host.zone), "attendees": attendees}
    )
    start = next(each.start for each in company.world.occurrences() if each.key[0] == event)
    value = f"{start.astimezone(ZoneInfo(company.me.zone)):%H:%M}"
    request = rng.choice(
        (
            f'At what time, on my clock, does "{title}" with {host.name} begin?',
            f'{host.name} has invited me to "{title}". When does it start here, in {company.me.city}?',
        )
    )
    request += " Answer with the time alone (24 hours, HH:MM), as the message of finish."
    spec = {"kind": "start", "title": title, "zone": company.me.zone}
    return _asked(company, request, spec, clock_in, value)


def _hours(rng: random.Random, level: str) -> Draft:
    company = running_company(rng, level)
    first = company.monday(rng.randint(0, 2))
    last = first + timedelta(days=4)
    _more(company, [first + timedelta(days=n) for n in range(5)], rng.randint(2, 6))
    found = [each for each in _taken_part(company, first, last) if each.event.get("transparency") != "transparent"]
    value = sum((each.end - each.start).total_seconds() for each in found) / 3600
    request = rng.choice(
        (
            f"How many hours of meetings do I have from {say_day(rng, first)} to {say_day(rng, last)}, both included?",
            f"Add up the hours that I spend in meetings in the week from {say_day(rng, first)} to "
            f"{say_day(rng, last)}.",
        )
    )
    request += (
        " Count every event with a start time in my own calendar that blocks my time and that I have not "
        "declined, each in "
        "full, also where two overlap. Answer with the number of hours alone, in decimals (such as 7.25), as the "
        "message "
        "of finish."
    )
    spec = {"kind": "hours", "first": first, "last": last, "zone": company.me.zone}
    return _asked(company, request, spec, number_in, value)


def _longest_gap(rng: random.Random, level: str) -> Draft:
    company = running_company(rng, level)
    me, day = company.me, rng.choice(company.workdays(1, 9))
    _more(company, [day], 2)
    hours = me.hours[("MO", "TU", "WE", "TH", "FR")[day.weekday()]]
    begin, end = (datetime.combine(day, datetime.strptime(each, "%H:%M").time(), ZoneInfo(me.zone)) for each in hours)
    position, longest = begin, 0.0
    for start, finish in [*busy_spans(company.world.occurrences(), me.email, me.zone), (end, end)]:
        if finish > begin and start <= end:
            longest = max(longest, (min(start, end) - position).total_seconds() / 60)
            position = max(position, min(finish, end))
    request = rng.choice(
        (
            f"What is my longest stretch of free time within my working hours on {say_day(rng, day)}, in minutes?",
            f"How many minutes is the longest gap without anything that blocks my time on {say_day(rng, day)}, "
            "within my "
            "working hours?",
        )
    )
    request += (
        " My working hours are in the directory. Answer with the number of minutes alone (0 if there is none), as the "
        "message of finish."
    )
    return _asked(company, request, {"kind": "gap", "day": day, "zone": me.zone}, number_in, longest)


def _first_slot(rng: random.Random, level: str) -> Draft:
    zones = rng.choice(ZONES["hard"])
    company = running_company(rng, level, zones)
    me, people = company.me, invited(company, zones, 2)
    minutes, begin = rng.choice((30, 60)), midnight(company.today() + timedelta(days=1), company.me.zone)
    everyone = [me, *people]
    obstruct(company, everyone, first_slot(company.world, everyone, begin, minutes), minutes)
    start = first_slot(company.world, everyone, begin, minutes).astimezone(ZoneInfo(me.zone))
    names = say_list([each.name for each in people])
    request = rng.choice(
        (
            f"When, from tomorrow on, is the first time that {names} and I are all free for {minutes} minutes?",
            f"What is the earliest start, tomorrow or later, for {minutes} minutes with {names} and me?",
        )
    )
    request += (
        " It must lie within everyone's working hours in their own zones and start on a full or half hour. Book "
        "nothing; "
        "answer with the start on my clock alone, as YYYY-MM-DD HH:MM, as the message of finish."
    )
    spec = {
        "kind": "slot",
        "guests": [each.name for each in people],
        "minutes": minutes,
        "begin": begin,
        "zone": me.zone,
    }
    return _asked(company, request, spec, moment_in, f"{start:%Y-%m-%d %H:%M}")


def _busiest(rng: random.Random, level: str) -> Draft:
    company = running_company(rng, level)
    me, people = company.me, company.colleagues(4)
    day = rng.choice(company.workdays(2, 9))
    begin, end = midnight(day, me.zone), midnight(day + timedelta(days=1), me.zone)
    _more(company, [day], 6)
    total: dict[str, float] = {}
    for person in people:
        merged, position = 0.0, begin
        for start, finish in company.world.busy(person.email):
            start, finish = max(start, position), min(finish, end)
            merged += max((finish - start).total_seconds(), 0.0) / 60
            position = max(position, finish)
        total[person.name] = merged
    best = max(total.values())
    names = say_list([each.name for each in people])
    request = rng.choice(
        (
            f"Of {names}: how many minutes is the busiest of them blocked on {say_day(rng, day)} (my day, from "
            "midnight to "
            "midnight)?",
            f"Look at {names} on {say_day(rng, day)}, from midnight to midnight here. For how many minutes is the "
            "one who is "
            "blocked longest blocked?",
        )
    )
    request += (
        " Go by free/busy; where things overlap, time counts once. Answer with the number of minutes alone, as "
        "the message "
        "of finish."
    )
    spec = {"kind": "busiest", "guests": [each.name for each in people], "day": day, "zone": me.zone}
    return _asked(company, request, spec, number_in, best)


def _taken_part(company: Company, first: date, last: date) -> list[Occurrence]:
    zone, email = company.me.zone, company.me.email
    begin, end = midnight(first, zone), midnight(last + timedelta(days=1), zone)
    return [
        each
        for each in company.world.occurrences()
        if not each.whole_days and begin <= each.start < end and takes_part(each, email)
    ]


def _more(company: Company, days: list[date], count: int) -> None:
    """More meetings of the acting user's, answered in all ways."""
    rng, me = company.rng, company.me
    for _ in range(count):
        host = rng.choice(company.others)
        answer = rng.choice(("accepted", "accepted", "tentative", "declined", "needsAction"))
        others = rng.sample([each for each in company.others if each is not host], 2)
        attendees = [organizer(host), *(invitation(company, each.email) for each in others)]
        attendees.append({"email": me.email, "responseStatus": answer})
        length = rng.choice((30, 45, 60, 75, 90))
        body = {"summary": company.title(), **timed(rng.choice(days), company.clock(8, 16), length, me.zone)}
        if rng.random() < 0.2:
            body["transparency"] = "transparent"
        company.world.event(host.email, {**body, "attendees": attendees})
