"""One task played in process, without a server: for scores and tests."""

from __future__ import annotations

from calendar_env.server.service import CalendarService
from calendar_env.server.store import CalendarStore
from calendar_env.server.task import Score
from calendar_env.tasks.agents import Agent
from calendar_env.tasks.solvers.desk import ServiceTools
from calendar_env.tasks.task import GeneratedTask


def play(task: GeneratedTask, agent: Agent, *, start: CalendarStore | None = None) -> Score:
    """Have an agent play a task.

    Args:
        task: The task.
        agent: Who plays.
        start: The calendars in the beginning, where they are at hand; they are not changed.
    """
    before = prepared(task) if start is None else start
    after = before.clone()
    message = agent(task, ServiceTools(CalendarService(after, task.acting_user, task.now)))
    return task.score(before, after, message)


def prepared(task: GeneratedTask) -> CalendarStore:
    """The calendars as they are before the task."""
    store = CalendarStore(id_seed=task.id)
    task.seed_database(store)
    return store
