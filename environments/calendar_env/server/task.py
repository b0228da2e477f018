"""What an episode is about: a company, a user's wish, and how the outcome is judged.

The environment knows tasks by this protocol alone. Those that come with it are made in `calendar_env.tasks`; a server
may be given others (``CalendarEnvironment(tasks=...)``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from calendar_env.server.store import CalendarStore


@dataclass(frozen=True)
class Score:
    """How good an outcome is.

    Attributes:
        value: The reward: 1.0 for all that was wanted and nothing else; below zero for damage.
        parts: How much of each part of the goal was reached, from 0.0 to 1.0, by its name.
        collateral: What was changed and should not have been, one plain line each.
    """

    value: float
    parts: dict[str, float] = field(default_factory=dict)
    collateral: list[str] = field(default_factory=list)


class Task(Protocol):
    """One task on one company's calendars. Equal tasks do equal things."""

    @property
    def id(self) -> str:
        """The task's name, such as "move_meeting/medium/17"."""
        ...

    @property
    def prompt(self) -> str:
        """What the agent is told: who the user is, when it is, and what the user wants."""
        ...

    @property
    def acting_user(self) -> str:
        """Address of the user for whom the agent acts."""
        ...

    @property
    def now(self) -> datetime:
        """The world's date and time, in the user's time zone."""
        ...

    def seed_database(self, store: CalendarStore) -> None:
        """Fill an empty store with what there is before the episode."""
        ...

    def score(self, before: CalendarStore, after: CalendarStore, message: str) -> Score:
        """Judge an outcome.

        Args:
            before: The calendars before the episode. Not to be changed.
            after: The calendars now. Not to be changed.
            message: What the agent said at the end; "" where it was stopped.
        """
        ...


class TaskSource(Protocol):
    """Where tasks come from. Equal sources (by ``==`` and hash) share what was prepared of a task."""

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the kinds of tasks."""
        ...

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, from easy to hard."""
        ...

    def generate(self, family: str, level: str, seed: int) -> Task:
        """The task of these; equal arguments make equal tasks."""
        ...


@dataclass(frozen=True)
class GeneratedTasks:
    """The tasks that come with the environment. All are equal: what is kept of a task is kept once for all sessions."""

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the kinds of tasks."""
        from calendar_env import tasks

        return tasks.FAMILIES

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, from easy to hard."""
        from calendar_env import tasks

        return tasks.LEVELS

    def generate(self, family: str, level: str, seed: int) -> Task:
        """The task of these; equal arguments make equal tasks."""
        from calendar_env import tasks

        return tasks.generate(family, level, seed)
