"""Tasks for an assistant on a company's calendars, made from a family, a level and a seed.

    task = generate("find_slot", "hard", 7)

Equal arguments make equal tasks, in any process. See `calendar_env.tasks.dataset` for rows to train on, and
`calendar_env.tasks.solvers` for scripts that solve them by the tools alone.
"""

from __future__ import annotations

import importlib
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calendar_env.tasks.task import GeneratedTask

FAMILIES: tuple[str, ...] = (
    "create_event",
    "book_room",
    "find_slot",
    "move_meeting",
    "cancel_instance",
    "change_following",
    "resolve_conflict",
    "out_of_office",
    "share_calendar",
    "reply_invitations",
    "weekly_series",
    "clean_duplicates",
    "hand_over",
    "answer_question",
    "team_calendar",
    "fix_time_zone",
    "recurring_room",
    "respect_permissions",
)
"""The families, each a module of `calendar_env.tasks.families`."""

LEVELS: tuple[str, ...] = ("easy", "medium", "hard")
"""The levels, that every family has."""

_MOST_TRIES = 100

__all__ = ["FAMILIES", "LEVELS", "generate"]


def generate(family: str, level: str, seed: int) -> GeneratedTask:
    """Make a task.

    Args:
        family: One of `FAMILIES`.
        level: One of `LEVELS`.
        seed: Draws the company, its calendars, the request and its wording.

    Raises:
        ValueError: There is no such family or level.
    """
    from calendar_env.tasks.task import GeneratedTask

    if family not in FAMILIES:
        raise ValueError(f"There is no task family {family!r}; there are: {', '.join(FAMILIES)}.")
    if level not in LEVELS:
        raise ValueError(f"There is no level {level!r}; there are: {', '.join(LEVELS)}.")
    module = importlib.import_module(f"calendar_env.tasks.families.{family}")
    for attempt in range(_MOST_TRIES):
        try:
            draft = module.draft(random.Random(f"{family} {level} {seed} {attempt}"), level)
        except LookupError:
            continue  # this company leaves no room for the request: take another
        return GeneratedTask(f"{family}/{level}/{seed}", draft)
    raise AssertionError(f"No company of {_MOST_TRIES} suits {family}/{level}/{seed}.")
