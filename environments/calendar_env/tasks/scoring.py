"""How a final state is scored: what was reached of the goal, less what was changed without being asked.

    score = sum of weight * reached / sum of weights  -  penalties, never below -1.0

Each event or series touched without need costs 0.25, and 0.05 more for each further occurrence of it, 0.75 at most;
what lies before or after the weeks that matter counts as one occurrence. Each other row (sharing, calendars, settings)
costs 0.25, and a new calendar too many as much, with all its rows. A message about an event that is as it was, and the
third and each further one to the same person about the same event, costs 0.05, all of them 0.5 at most. Who does
nothing gets exactly 0.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from calendar_env.tasks.goals import Part
from calendar_env.tasks.snapshot import Difference, Fields

if TYPE_CHECKING:
    from calendar_env.server.task import Score

ROW_PENALTY = 0.25
FURTHER_OCCURRENCE_PENALTY = 0.05
MOST_FOR_ONE_EVENT = 0.75
MESSAGE_PENALTY = 0.05
MOST_FOR_MESSAGES = 0.5
MESSAGES_ABOUT_ONE_EVENT = 2
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
    needless = _needless_mail(difference)
    lines += needless
    penalty += min(MESSAGE_PENALTY * len(needless), MOST_FOR_MESSAGES)
    if not lines and all(share == 1.0 for share in parts.values()):
        value = 1.0  # not 0.9999999 of many small weights
    return Score(value=max(LOWEST_SCORE, round(value - penalty, 6)), parts=parts, collateral=lines)


def _collateral(difference: Difference) -> tuple[list[str], float]:
    lines: list[str] = []
    touched: Counter[str] = Counter()
    old, new = difference.before.occurrences, difference.after.occurrences
    far = difference.before.far | difference.after.far
    beyond = Counter(key[0] for key in (*difference.removed, *difference.added, *difference.changed) if key in far)
    for event, count in sorted(beyond.items()):
        touched[event] += 1
        title = next(fields["summary"] for fields in _all_of(event, difference))
        lines.append(f"'{title}' is not as it was, or new, {count} times before or after the weeks around today.")
    for key in sorted(difference.removed - far):
        touched[key[0]] += 1
        lines.append(f"'{old[key]['summary']}' at {old[key]['start']:%Y-%m-%d %H:%M} UTC is gone.")
    for key in sorted(difference.added - far):
        touched[key[0]] += 1
        lines.append(f"'{new[key]['summary']}' at {new[key]['start']:%Y-%m-%d %H:%M} UTC is new.")
    for key, names in sorted(difference.changed.items()):
        if key in far:
            continue
        touched[key[0]] += 1
        what = ", ".join(sorted(names))
        lines.append(f"'{old[key]['summary']}' at {old[key]['start']:%Y-%m-%d %H:%M} UTC was changed: {what}.")
    penalty = sum(
        min(ROW_PENALTY + FURTHER_OCCURRENCE_PENALTY * (count - 1), MOST_FOR_ONE_EVENT) for count in touched.values()
    )
    # A new calendar too many counts once, not for each of its rows; one that is deleted again has harmed nothing.
    made = {
        name for table, name in difference.rows if table == "calendars" and (table, name) not in difference.before.rows
    }
    for name in sorted(made):
        calendar = difference.after.rows["calendars", name]
        if not calendar.get("deleted"):
            penalty += ROW_PENALTY
            lines.append(f"The calendar '{calendar['summary']}' is new.")
    for table, name in sorted(difference.rows):
        if _calendar_of(table, name) in made:
            continue
        penalty += ROW_PENALTY
        lines.append(f"The row '{name}' of {table} was changed.")
    return lines, penalty


def _all_of(event: str, difference: Difference) -> Iterator[Fields]:
    for snapshot in (difference.before, difference.after):
        yield from (fields for key, fields in snapshot.occurrences.items() if key[0] == event)


def _calendar_of(table: str, name: str) -> str | None:
    """The calendar that a row belongs to."""
    if table == "calendars":
        return name
    if table == "acl":
        return name.partition(" ")[0]
    return name.partition(" ")[2] if table == "calendarList" else None


def _needless_mail(difference: Difference) -> list[str]:
    """A line for each message that told people nothing they had to know."""
    lines: list[str] = []
    sent: Counter[tuple[str, str]] = Counter()
    for kind, identifier, recipient in difference.sent:
        event = identifier.partition("_")[0]  # an instance belongs to its series
        sent[identifier, recipient] += 1
        if event not in difference.altered:
            lines.append(f"{recipient} was sent mail ({kind}) about an event that is as it was.")
        elif sent[identifier, recipient] > MESSAGES_ABOUT_ONE_EVENT:
            lines.append(f"{recipient} was sent mail ({kind}) about one event again and again.")
    return lines
