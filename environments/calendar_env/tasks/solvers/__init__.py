"""Scripts that solve every task by its tools alone: what a perfect agent can reach, and games to learn from.

A solver knows the parameters of the request (`GeneratedTask.spec`), as an agent reads them in the prompt, and nothing
of the goal that is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calendar_env.tasks.solvers import answering, changing, making, sharing
from calendar_env.tasks.solvers.desk import Desk, Refused, ServiceTools, Tools
from calendar_env.tasks.task import GeneratedTask

SOLVERS: dict[str, Callable[[dict[str, Any], Desk], str]] = {
    "create_event": making.create_event,
    "book_room": making.book_room,
    "find_slot": making.find_slot,
    "move_meeting": changing.move_meeting,
    "cancel_instance": answering.cancel_instance,
    "change_following": changing.change_following,
    "resolve_conflict": answering.resolve_conflict,
    "out_of_office": answering.out_of_office,
    "share_calendar": sharing.share_calendar,
    "reply_invitations": answering.reply_invitations,
    "weekly_series": making.weekly_series,
    "clean_duplicates": answering.clean_duplicates,
    "hand_over": changing.hand_over,
    "answer_question": answering.answer_question,
    "team_calendar": making.team_calendar,
    "fix_time_zone": changing.fix_time_zone,
    "recurring_room": making.recurring_room,
    "respect_permissions": changing.respect_permissions,
}
"""The solver of each family: given the request's parameters and a desk, it acts, and returns its last message."""

__all__ = ["SOLVERS", "Desk", "Refused", "ServiceTools", "Tools", "solve"]


def solve(task: GeneratedTask, tools: Tools) -> str:
    """Solve a task by tool calls; returns the message to finish with."""
    return SOLVERS[task.id.partition("/")[0]](dict(task.spec), Desk(tools, task.acting_user))
