"""Share calendars with as few rights as do: grant, change and take away, and clean up a list of rules."""

from __future__ import annotations

import random
from typing import Any

from calendar_env.tasks.background import running_company
from calendar_env.tasks.company import Company
from calendar_env.tasks.people import PROJECTS
from calendar_env.tasks.row_goals import RowIs
from calendar_env.tasks.scoring import Goal
from calendar_env.tasks.task import Draft
from calendar_env.tasks.wording import say_list

ROLES = {
    "freeBusyReader": ("see when I am busy, but not what I do", "see only free and busy times"),
    "reader": ("see the details of all events, but change nothing", "read my events in full, without changing any"),
    "writer": ("add and change events", "make changes to events"),
    "owner": ("change events and also manage the sharing", "edit everything, the sharing included"),
}
"""What a role allows, in words."""


def draft(rng: random.Random, level: str) -> Draft:
    """One task of this family."""
    company = running_company(rng, level)
    if level == "hard":
        return _audit(company)
    me, world = company.me, company.world
    people = company.colleagues(1 if level == "easy" else 3)
    changes: list[tuple[str, str | None]] = []
    told: list[str] = []
    for index, person in enumerate(people):
        # Colleagues see free/busy anyway, so that role is only a step down.
        role: str | None = rng.choice([each for each in sorted(ROLES) if index == 1 or each != "freeBusyReader"])
        if index == 1:
            old = rng.choice([each for each in ROLES if each != role])
            world.rule(me.email, "user", person.email, old)
        if index == 2:
            world.rule(me.email, "user", person.email, rng.choice(sorted(ROLES)))
            role = None
        changes.append((person.name, role))
        if role is None:
            told.append(f"{person.name} shall have no access of their own any more")
        else:
            told.append(f"{person.name} shall be able to {rng.choice(ROLES[role])}")
    # Others have rules too, which stay.
    for other in rng.sample([each for each in company.others if each not in people], 2):
        world.rule(me.email, "user", other.email, rng.choice(sorted(ROLES)))
    order = rng.sample(range(len(people)), len(people))
    request = rng.choice(
        (
            f"Please change who may use my calendar: {say_list([told[n] for n in order])}.",
            f"About the sharing of my own calendar: {say_list([told[n] for n in order])}.",
            f"Set up access to my calendar. {say_list([told[n] for n in order])}.",
        )
    )
    request += " Give no more rights than that, and leave everybody else's as they are."
    spec: dict[str, Any] = {"calendar": me.email, "changes": changes, "audit": False}
    goal: Goal = [
        (1.0, RowIs(f"rule {index + 1}", ("acl", f"{me.email} user:{person.email}"), _enough(role)))
        for index, (person, (_, role)) in enumerate(zip(people, changes, strict=True))
    ]
    return Draft(company, request, spec, lambda before: goal)


def _enough(role: str | None) -> Any:
    """What the rule may be; to take away what gives no more than all colleagues have is as good as to keep it."""
    return _free_busy_at_most if role == "freeBusyReader" else role


def _free_busy_at_most(role: str | None) -> bool:
    return role in (None, "freeBusyReader")


def _audit(company: Company) -> Draft:
    """A project's calendar that has been shared with whoever asked."""
    rng, me, world = company.rng, company.me, company.world
    project = rng.choice(PROJECTS)
    calendar = world.calendar(f"c_{world.identifier(16)}@group.calendar", f"{project} launch", me.email, zone=me.zone)
    group = rng.choice(sorted(company.teams))
    team = company.teams[group][0].team
    people = rng.sample(company.others, 6)
    editors = people[:2]
    old: dict[str, str] = {}
    for index, person in enumerate(people):
        if index != 1:  # one of the editors has no rule yet
            old[person.email] = rng.choice(("freeBusyReader", "reader", "writer", "owner"))
            world.rule(calendar, "user", person.email, old[person.email])
    if rng.random() < 0.5:
        world.rule(calendar, "group", group, rng.choice(("freeBusyReader", "writer")))
    world.rule(calendar, "default", "", rng.choice(("freeBusyReader", "reader")))
    if old[editors[0].email] == "writer":
        raise LookupError("Nothing to change for the first editor.")
    names = say_list([each.name for each in editors])
    request = rng.choice(
        (
            f'Please tidy up the sharing of my calendar "{project} launch".',
            f'The calendar "{project} launch" of mine is shared far too widely. Put that right.',
        )
    )
    request += (
        f" {names} may add and change events, but not manage the sharing. The group of the {team} team ({group}) "
        "may see "
        "all details and change nothing. I stay the owner. Remove every other rule, also the public one."
    )
    spec: dict[str, Any] = {
        "calendar_title": f"{project} launch",
        "changes": [(each.name, "writer") for each in editors],
        "group": group,
        "audit": True,
    }
    goal: Goal = [(1.0, RowIs(each.name, ("acl", f"{calendar} user:{each.email}"), "writer")) for each in editors]
    goal.append((1.0, RowIs("the team", ("acl", f"{calendar} group:{group}"), "reader")))
    goal.append((1.0, RowIs("the public", ("acl", f"{calendar} default"), None)))
    goal += [(1.0, RowIs(each.name, ("acl", f"{calendar} user:{each.email}"), None)) for each in people[2:]]
    return Draft(company, request, spec, lambda before: goal)
