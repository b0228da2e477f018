"""Make a calendar for a team: named and zoned, shared, and with its first events."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from calendar_env.tasks.background import running_company
from calendar_env.tasks.goals import New, same_title
from calendar_env.tasks.people import CITIES, PROJECTS
from calendar_env.tasks.row_goals import NewCalendar
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_clock, say_day, say_list
from calendar_env.tasks.world import at


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    me = company.me
    name = f"{rng.choice(PROJECTS)} {rng.choice(('team', 'launch', 'milestones', 'on-call', 'events'))}"
    zone = me.zone if level == "easy" else rng.choice([each for each in CITIES if each != me.zone])
    spec: dict[str, Any] = {"name": name, "zone": zone, "shared": [], "description": None, "events": []}
    where = "my own time zone" if zone == me.zone else f"the time zone of {CITIES[zone]} ({zone})"
    request = rng.choice(
        (
            f'Please make a new calendar "{name}" in {where}.',
            f'I need a new calendar called "{name}". Its time zone is {where}.',
            f'Create a calendar "{name}" for me, in {where}.',
        )
    )
    fields: dict[str, Any] = {"summary": same_title(name), "timeZone": zone}
    shared: dict[str, str] = {}
    if level == "easy":
        spec["description"] = rng.choice(("All dates of the project.", "Who is where, and when.", "Dates that matter."))
        fields["description"] = same_title(spec["description"])
        request += f' Its description is "{spec["description"]}"'
    else:
        group = rng.choice(sorted(company.teams))
        team = company.teams[group][0].team
        spec["shared"].append(("group", group, "reader"))
        shared[f"group:{group}"] = "reader"
        request += (
            f" The group of the {team} team ({group}) shall be able to see its events in full, but not change them."
        )
        editors = company.colleagues(1 if level == "medium" else 2)
        for person in editors:
            spec["shared"].append(("user", person.name, "writer"))
            shared[f"user:{person.email}"] = "writer"
        names = say_list([each.name for each in editors])
        request += f" {names} may also enter and change events, but not share it on. Nobody else gets access."
    calendar = NewCalendar("the calendar", fields, shared, me.email)
    goal: Goal = [(1.0, calendar)]
    if level == "hard":
        told: list[str] = []
        for title in company.titles(2):
            day, clock, minutes = rng.choice(company.workdays(3, 30)), company.clock(), rng.choice((30, 60, 90))
            spec["events"].append((title, day, clock, minutes))
            told.append(f'"{title}" on {say_day(rng, day)} at {say_clock(rng, clock)} for {minutes} minutes')
            start = at(day, clock, zone)
            event = {"summary": same_title(title), "start": start, "end": start + timedelta(minutes=minutes)}
            goal = [*goal, (0.4, New(title, event, calendar=calendar.found))]
        request += f" Enter into it: {say_list(told)}, both in {CITIES[zone]} time and without guests."
    return Draft(company, request, spec, lambda before: goal)
