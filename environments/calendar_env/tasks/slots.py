"""The first slot in which people can meet, found from the calendars themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from calendar_env.tasks.busy import half_hours, is_free, works
from calendar_env.tasks.people import Person
from calendar_env.tasks.world import World


def first_slot(
    world: World,
    people: Sequence[Person],
    begin: datetime,
    minutes: int,
    *,
    days: int = 10,
    until: datetime | None = None,
    working: Callable[[Person], bool] = lambda person: True,
) -> datetime:
    """The first full or half hour at which all are free, and work, for so long.

    Args:
        world: The calendars.
        people: Who shall meet.
        begin: The earliest start.
        minutes: How long they meet.
        days: How far is looked.
        until: When the meeting must have ended; None for as far as is looked.
        working: Whose working hours count.

    Raises:
        LookupError: There is none.
    """
    busy = [world.busy(person.email) for person in people]
    length = timedelta(minutes=minutes)
    for start in half_hours(begin, days):
        end = start + length
        if until is not None and end > until:
            break
        if all(works(each.hours, each.zone, start, end) for each in people if working(each)) and all(
            is_free(spans, start, end) for spans in busy
        ):
            return start
    raise LookupError("They have no time together.")
