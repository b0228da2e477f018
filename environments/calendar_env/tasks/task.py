"""A task as its family makes it: a world, words, and a goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from calendar_env.tasks.company import Company
from calendar_env.tasks.scoring import Goal, scored
from calendar_env.tasks.snapshot import Difference, Snapshot, changed_events, snapshot
from calendar_env.tasks.world import World

if TYPE_CHECKING:
    from calendar_env.server.store import CalendarStore
    from calendar_env.server.task import Score


@dataclass(frozen=True)
class Draft:
    """What a family makes of a company.

    Attributes:
        company: Where it plays; its world holds all that stands in the calendars.
        request: What the user asks for, in their words.
        spec: The request's parameters as values, for scripted agents. Nothing of the goal beyond the request.
        goal: Given the calendars as they are in the beginning, what they shall be.
        quiet: Whether the request says that nobody is to be written to.
    """

    company: Company
    request: str
    spec: Mapping[str, Any]
    goal: Callable[[Snapshot], Goal]
    quiet: bool = False


class GeneratedTask:
    """A task made from a family, a level and a seed.

    Attributes:
        id: "family/level/seed".
        prompt: The situation and the request: all that the agent is told.
        acting_user: The user for whom the agent acts.
        now: The time at which the episode plays.
        spec: The request's parameters as values, for scripted agents.
    """

    def __init__(self, identifier: str, draft: Draft) -> None:
        company = draft.company
        self.id = identifier
        self.acting_user = company.me.email
        self.now: datetime = company.now
        self.spec = draft.spec
        self.prompt = f"{_situation(company)}\n\n{draft.request}"
        self._world: World = company.world
        self._goal = draft.goal
        self._quiet = draft.quiet

    def seed_database(self, store: CalendarStore) -> None:
        """Write the company and its calendars into an empty store."""
        self._world.seed(store)

    def score(self, before: CalendarStore, after: CalendarStore, message: str) -> Score:
        """What the final calendars, and the last message, are worth."""
        first, last = before.dump(), after.dump()
        # What is as it was needs no look beyond the weeks that matter.
        whole = changed_events(first, last)
        old = snapshot(first, self._world.horizon, self.acting_user, whole)
        new = snapshot(last, self._world.horizon, self.acting_user, whole)
        return scored(self._goal(old), Difference(old, new), message, quiet=self._quiet)


def _situation(company: Company) -> str:
    me = company.me
    return (
        f"You are the calendar assistant of {me.name} ({me.email}), {me.title} at {company.name}. "
        f"It is {company.now:%A}, {company.now.day} {company.now:%B %Y}, {company.now:%H:%M} in {me.city} ({me.zone}). "
        "Times are in this time zone unless said otherwise. Change nothing that is not asked for. "
        "Act with the tools; call finish when you are done."
    )
