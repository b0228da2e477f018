"""What goes on in a company anyway: stand-ups with exceptions, one-to-ones, single meetings, private matters, absences.

Titles come from lists of their own, so that no task's event is ever mistaken for one of these.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta

from calendar_env.tasks import people as words
from calendar_env.tasks.company import Company
from calendar_env.tasks.people import Person
from calendar_env.tasks.world import Body, all_day, at, timed


def running_company(rng: random.Random, level: str, zones: Sequence[str] = ()) -> Company:
    """A company with full calendars, larger the harder the level is.

    Args:
        rng: Where everything is drawn from.
        level: "easy", "medium" or "hard".
        zones: Time zones that must have somebody, the acting user's first.
    """
    company = Company(rng, size={"easy": 6, "medium": 8, "hard": 10}[level], zones=zones)
    furnish(company)
    return company


def furnish(company: Company, *, meetings: int = 2) -> None:
    """Fill the calendars.

    Args:
        company: Whose calendars.
        meetings: Single meetings that each person invites to in the two weeks from this Monday on.
    """
    _public_calendar(company)
    for members in company.teams.values():
        _stand_up(company, members)
        for member in members[1:]:
            if company.rng.random() < 0.6:
                _one_to_one(company, members[0], member)
    for person in company.people:
        for _ in range(company.rng.randint(1, meetings)):
            _meeting(company, person)
        _private(company, person)
    away = company.rng.choice(company.others)
    first = company.rng.choice(company.workdays(1, 12))
    company.world.event(
        away.email,
        {"summary": "Out of office", "eventType": "outOfOffice", **all_day(first, company.rng.randint(1, 2))},
    )


def invitation(company: Company, email: str) -> Body:
    """One attendee of a meeting that happens anyway: most have answered."""
    response = company.rng.choices(("accepted", "tentative", "needsAction", "declined"), (8, 1, 2, 1))[0]
    # What the acting user has not answered yet is for the tasks that are about answering.
    return {"email": email, "responseStatus": "accepted" if email == company.me.email else response}


def organizer(person: Person) -> Body:
    """The attendee that stands for the organizer."""
    return {"email": person.email, "responseStatus": "accepted"}


def _public_calendar(company: Company) -> None:
    world, owner = company.world, company.others[0]
    identifier = world.calendar(
        f"events@{company.domain}", f"{company.name} events", owner.email, zone=company.me.zone, description="For all."
    )
    world.rule(identifier, "domain", company.domain, "reader")
    world.list_entry(company.me.email, identifier)
    for name in company.rng.sample(("Summer party", "All hands", "Family day", "Charity run", "Fire drill"), 2):
        day = company.rng.choice(company.workdays(3, 25))
        world.event(identifier, {"summary": name, "transparency": "transparent", **all_day(day)})


def _stand_up(company: Company, members: list[Person]) -> None:
    rng, lead = company.rng, members[0]
    days = rng.choice(("MO,TU,WE,TH,FR", "MO,WE,FR", "TU,TH"))
    first = company.monday(-2) + timedelta(days=1 if days.startswith("TU") else 0)
    clock = rng.choice(("09:00", "09:15", "09:30"))
    series = company.world.event(
        lead.email,
        {
            "summary": f"{lead.team} stand-up",
            **timed(first, clock, 15, lead.zone),
            "recurrence": [f"RRULE:FREQ=WEEKLY;BYDAY={days}"],
            "attendees": [organizer(lead), *(invitation(company, each.email) for each in members[1:])],
        },
    )
    weekly = [first + timedelta(weeks=week) for week in range(1, 7)]
    cancelled, moved = rng.sample(weekly, 2)
    company.world.exception(series, at(cancelled, clock, lead.zone), {"status": "cancelled"})
    company.world.exception(series, at(moved, clock, lead.zone), timed(moved, "12:30", 15, lead.zone))


def _one_to_one(company: Company, lead: Person, member: Person) -> None:
    rng = company.rng
    first = company.monday(-1) + timedelta(days=rng.randrange(5))
    company.world.event(
        lead.email,
        {
            "summary": f"{lead.name.split()[0]} / {member.name.split()[0]}",
            **timed(first, company.clock(10, 15), 30, lead.zone),
            "recurrence": [
                rng.choice(("RRULE:FREQ=WEEKLY", "RRULE:FREQ=WEEKLY;INTERVAL=2", "RRULE:FREQ=WEEKLY;COUNT=20"))
            ],
            "attendees": [organizer(lead), invitation(company, member.email)],
        },
    )


def _meeting(company: Company, person: Person) -> None:
    rng = company.rng
    day = _weekday(company)
    invited = rng.sample([each for each in company.people if each is not person], rng.randint(1, 3))
    body: Body = {
        "summary": rng.choice(words.EVERYDAY),
        **timed(day, company.clock(9, 15), rng.choice((30, 45, 60, 60, 90)), person.zone),
        "attendees": [organizer(person), *(invitation(company, each.email) for each in invited)],
    }
    if rng.random() < 0.3:
        body["description"] = rng.choice(("Bring numbers.", "Notes are in the wiki.", "Agenda follows."))
    company.world.event(person.email, body)


def _private(company: Company, person: Person) -> None:
    rng = company.rng
    day = _weekday(company)
    if rng.random() < 0.5:
        body = {"summary": rng.choice(words.PRIVATE_MATTERS), "visibility": "private"}
        company.world.event(person.email, {**body, **timed(day, company.clock(11, 15), 60, person.zone)})
    if rng.random() < 0.4:
        body = {"summary": "Focus time", "eventType": "focusTime"}
        company.world.event(person.email, {**body, **timed(day, "13:00", 90, person.zone)})
    if rng.random() < 0.3:
        body = {"summary": "Bring cake", "transparency": "transparent"}
        company.world.event(person.email, {**body, **all_day(_weekday(company))})


def _weekday(company: Company) -> date:
    return company.monday(company.rng.choice((0, 0, 1, 1, 2))) + timedelta(days=company.rng.randrange(5))
