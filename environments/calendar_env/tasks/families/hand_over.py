"""Hand meetings over: into a project's calendar, or to the colleague who takes them on."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from calendar_env.tasks.background import organizer, running_company
from calendar_env.tasks.company import Company
from calendar_env.tasks.goals import Changed, Each
from calendar_env.tasks.people import OCCASIONS, PROJECTS, Person
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_day
from calendar_env.tasks.world import timed


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me, world = company.me, company.world
    project = rng.choice(PROJECTS)
    heir = rng.choice(company.others)
    spec: dict[str, Any] = {"level": level, "project": project, "zone": me.zone, "today": company.today()}
    if level == "hard":
        target = heir.email
        world.rule(heir.email, "user", me.email, "writer")
        world.list_entry(me.email, heir.email)
        spec["heir"] = heir.name
    else:
        target = world.calendar(f"c_{world.identifier(16)}@group.calendar", f"{project} team", heir.email, zone=me.zone)
        world.rule(target, "user", me.email, "writer")
        world.list_entry(me.email, target)
        spec["calendar_title"] = f"{project} team"
    goal: Goal = []
    if level == "easy":
        day, clock = company.quiet_slot(company.workdays(1, 15), 60, [me.email])
        event = _meeting(company, project, "budget talk", day, clock, rng.sample(company.others, 2))
        spec |= {"title": f"{project} budget talk", "day": day}
        request = rng.choice(
            (
                f'Move the event "{project} budget talk" of {say_day(rng, day)} from my calendar to the calendar '
                f'"{project} team".',
                f'"{project} budget talk" on {say_day(rng, day)} belongs into the calendar "{project} team". '
                "Please move it "
                "there from mine.",
            )
        )
        goal = [(1.0, _handed("the meeting", company, event, target, heir))]
        return Draft(company, request + " Its time and guests stay.", spec, lambda before: goal)
    handed: list[str] = []
    occasions = rng.sample(OCCASIONS, 6)
    for index in range(3 if level == "medium" else 2):
        day = rng.choice(company.workdays(1, 20))
        others = [heir, rng.choice([each for each in company.others if each is not heir])]
        handed.append(_meeting(company, project, occasions[index], day, company.clock(), others))
    # What looks like it and is not: another project's, one without the heir, one that is over.
    other = rng.choice([each for each in PROJECTS if each != project])
    _meeting(company, other, occasions[3], rng.choice(company.workdays(1, 20)), company.clock(), [heir])
    if level == "hard":
        lone = [rng.choice([each for each in company.others if each is not heir])]
        _meeting(company, project, occasions[4], rng.choice(company.workdays(1, 20)), company.clock(), lone)
        series = _meeting(company, project, "check-in", company.monday(1), company.clock(), [heir], weekly=True)
        handed.append(series)
        request = rng.choice(
            (
                f"{heir.name} takes over {project} from me.",
                f"I hand {project} over to {heir.name}.",
            )
        )
        request += (
            f' Move all meetings from tomorrow on that I organise, whose title begins with "{project}" and to which '
            f"{heir.name} is invited, from my calendar to {heir.name}'s own calendar, so that they become the "
            "organizer. "
            "I may write to that calendar. A series is moved as a whole. Leave all others where they are."
        )
    else:
        request = rng.choice(
            (
                f'All events from tomorrow on in my calendar whose title begins with "{project}" shall move to '
                "the calendar "
                f'"{project} team".',
                f'Please move everything of mine that begins with "{project}", from tomorrow on, to the calendar '
                f'"{project} team". Leave the rest.',
            )
        )
    _meeting(company, project, occasions[5], company.monday(-1) + timedelta(days=rng.randrange(5)), "11:00", [heir])
    goal = [(1.0, _handed(f"meeting {n + 1}", company, event, target, heir)) for n, event in enumerate(handed)]
    return Draft(company, request, spec, lambda before: goal)


def _meeting(
    company: Company, project: str, occasion: str, day: Any, clock: str, others: list[Person], weekly: bool = False
) -> str:
    me = company.me
    attendees = [organizer(me), *({"email": each.email, "responseStatus": "accepted"} for each in others)]
    body = {"summary": f"{project} {occasion}", **timed(day, clock, 45, me.zone), "attendees": attendees}
    if weekly:
        body["recurrence"] = ["RRULE:FREQ=WEEKLY;COUNT=8"]
    return company.world.event(me.email, body)


def _handed(name: str, company: Company, event: str, target: str, heir: Person) -> Each:
    # The organizer's own place on the list of guests goes with the meeting: the old one may stay as a guest.
    loose = (f"guest {company.me.email}", f"guest {heir.email}")
    return Each(name, [Changed(name, key, {"calendar": target}, loose=loose) for key in company.world.keys(event)])
