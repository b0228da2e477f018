"""Answer invitations: one by name, those of a week by whether there is time, or by a list of rules in order."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any

from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.busy import blocks, response_of, works
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import Changed
from calendar_env.tasks.occurrences import local_day
from calendar_env.tasks.people import Person
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_day
from calendar_env.tasks.world import at, timed

_VERBS = {"accepted": ("accept", "say yes to"), "declined": ("decline", "say no to"), "tentative": ("answer maybe to",)}


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me = company.me
    spec: dict[str, Any] = {"level": level, "zone": me.zone}
    if level == "easy":
        day, clock = company.quiet_slot(company.workdays(1, 14), 60, [me.email])
        title, host, answer = company.title(), rng.choice(company.others), rng.choice(sorted(_VERBS))
        event = _invite(company, title, host, day, clock)
        _invite(company, company.title(), rng.choice(company.others), *company.quiet_slot([day], 60, [me.email]))
        verb = rng.choice(_VERBS[answer])
        request = rng.choice(
            (
                f'Please {verb} the invitation to "{title}" on {say_day(rng, day)} for me.',
                f'{host.name} has invited me to "{title}" ({say_day(rng, day)}). Please {verb} it.',
            )
        )
        goal: Goal = [(1.0, Changed("the reply", (event, ""), {f"guest {me.email}": answer}))]
        return Draft(company, request, spec | {"title": title, "day": day, "answer": answer}, lambda before: goal)
    monday = company.monday(rng.randint(1, 2))
    answers = _week(company, monday, level)
    spec |= {"first": monday, "last": monday + timedelta(days=4)}
    request = rng.choice(
        (
            f"Please answer the invitations of the five days from {say_day(rng, monday)} on, Monday to Friday, that I "
            "have not answered yet.",
            f"I have open invitations in the week that begins on {say_day(rng, monday)}, Monday to Friday. Please "
            "reply to "
            "all that still wait for an answer.",
        )
    )
    if level == "medium":
        request += (
            " Accept what fits. Decline what overlaps with something in my calendar that makes me busy and that I have "
            "not declined, other open invitations aside."
        )
    else:
        request += (
            " Use the first rule that applies. 1. What my manager invites me to I accept. 2. What overlaps with "
            "something "
            "in my calendar that makes me busy and that I have not declined (other open invitations aside) I decline. "
            "3. What does not lie within my working hours is tentative. 4. All else I accept."
        )
    goal = [
        (1.0, Changed(f"reply {n + 1}", (event, ""), {f"guest {me.email}": answer}))
        for n, (event, answer) in enumerate(answers.items())
    ]
    return Draft(company, request, spec, lambda before: goal)


def _invite(company: Company, title: str, host: Person, day: date, clock: str, response: str = "needsAction") -> str:
    others = [each for each in company.others if each is not host]
    guest = company.rng.choice(others)
    attendees = [
        organizer(host),
        {"email": company.me.email, "responseStatus": response},
        {"email": guest.email, "responseStatus": "accepted"},
    ]
    body = {"summary": title, **timed(day, clock, 60, company.me.zone), "attendees": attendees}
    return company.world.event(host.email, body)


def _week(company: Company, monday: date, level: str) -> Mapping[str, str]:
    """Open invitations all over the week, no two of which overlap; and how each is to be answered."""
    rng, me = company.rng, company.me
    manager = next(each for each in company.others if each.email == me.manager)
    peers = [each for each in company.others if each is not manager]
    days = [monday + timedelta(days=n) for n in range(5)]
    events: list[tuple[str, datetime, bool]] = []
    kinds = (
        ["free", "busy", "free", "busy"] if level == "medium" else ["free", "busy", "late", "manager", "manager busy"]
    )
    for kind, day in zip(kinds, rng.sample(days, len(kinds)), strict=True):
        if kind == "late":
            clock = rng.choice(("18:00", "18:30", "07:00"))
        else:
            _, clock = company.quiet_slot([day], 60, [me.email], first=10, last=14)
        host = manager if "manager" in kind else rng.choice(peers)
        if "busy" in kind:
            other = rng.choice([each for each in peers if each is not host])
            _invite(
                company, company.title(), other, day, _half_an_hour_on(clock), rng.choice(("accepted", "tentative"))
            )
        elif kind == "free" and rng.random() < 0.5:
            _invite(company, company.title(), rng.choice(peers), day, clock, "declined")
        event = _invite(company, company.title(), host, day, clock)
        events.append((event, at(day, clock, me.zone).astimezone(timezone.utc), host is manager))
    return {event: _answer(company, event, start, from_manager, level) for event, start, from_manager in events}


def _answer(company: Company, event: str, start: datetime, from_manager: bool, level: str) -> str:
    me, end = company.me, start + timedelta(minutes=60)
    if level == "hard" and from_manager:
        return "accepted"
    for each in company.world.occurrences():
        if each.key[0] == event or not blocks(each, me.email) or response_of(each.event, me.email) == "needsAction":
            continue
        first, last = each.start, each.end
        if each.whole_days:
            first = local_day(first.date(), me.zone)[0]
            last = local_day((last - timedelta(days=1)).date(), me.zone)[1]
        if first < end and last > start:
            return "declined"
    if level == "hard" and not works(me.hours, me.zone, start, end):
        return "tentative"
    return "accepted"


def _half_an_hour_on(clock: str) -> str:
    hour, minute = map(int, clock.split(":"))
    return f"{hour + (minute == 30):02d}:{'00' if minute == 30 else '30'}"
