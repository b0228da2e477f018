"""How a final state is scored: what was reached of the goal, less what was changed without being asked.

    score = sum of weight * reached / sum of weights  -  penalties, never below -1.0

Each event or series touched without need costs 0.25, and 0.05 more for each further occurrence of it, 0.75 at most;
each other row (sharing, calendars, settings) costs 0.25. Who does nothing gets exactly 0.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calendar_env.tasks.goals import Part
from calendar_env.tasks.snapshot import Difference

if TYPE_CHECKING:
    from calendar_env.server.task import Score

ROW_PENALTY = 0.25
FURTHER_OCCURRENCE_PENALTY = 0.05
MOST_FOR_ONE_EVENT = 0.75
LOWEST_SCORE = -1.0

Goal = Sequence[tuple[float, Part]]
"""The parts with their weights."""


def scored(goal: Goal, difference: Difference, message: str, *, quiet: bool = False) -> Score:
    """The score of what was done.

    Args:
        goal: What was wanted.
        difference: What was done; its claims are used up.
        message: The agent's last message.
        quiet: Whether nobody was to be written to.
    """
    from calendar_env.server.task import Score

    total = sum(weight for weight, _ in goal)
    parts: dict[str, float] = {}
    value = 0.0
    for weight, part in goal:
        parts[part.name] = part.reached(difference, message)
        value += weight / total * parts[part.name]
    lines, penalty = _collateral(difference)
    if quiet and difference.sent:
        lines.append(f"Mail was sent to {', '.join(sorted({each[2] for each in difference.sent}))}.")
        penalty += ROW_PENALTY
    if not lines and all(share == 1.0 for share in parts.values()):
        value = 1.0  # not 0.9999999 of many small weights
    return Score(value=max(LOWEST_SCORE, round(value - penalty, 6)), parts=parts, collateral=lines)


def _collateral(difference: Difference) -> tuple[list[str], float]:
    lines: list[str] = []
    touched: Counter[str] = Counter()
    old, new = difference.before.occurrences, difference.after.occurrences
    for key in sorted(difference.removed):
        touched[key[0]] += 1
        lines.append(f"'{old[key]['summary']}' at {old[key]['start']:%Y-%m-%d %H:%M} UTC is gone.")
    for key in sorted(difference.added):
        touched[key[0]] += 1
        lines.append(f"'{new[key]['summary']}' at {new[key]['start']:%Y-%m-%d %H:%M} UTC is new.")
    for key, names in sorted(difference.changed.items()):
        touched[key[0]] += 1
        what = ", ".join(sorted(names))
        lines.append(f"'{old[key]['summary']}' at {old[key]['start']:%Y-%m-%d %H:%M} UTC was changed: {what}.")
    penalty = sum(
        min(ROW_PENALTY + FURTHER_OCCURRENCE_PENALTY * (count - 1), MOST_FOR_ONE_EVENT) for count in touched.values()
    )
    # What of a new calendar is too much counts once, not for each of its rows.
    for table, name in sorted(difference.rows):
        penalty += ROW_PENALTY
        lines.append(f"The row '{name}' of {table} was changed.")
    return lines, penalty
