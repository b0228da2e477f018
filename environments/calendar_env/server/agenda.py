"""What is on a calendar, instance by instance: series expanded, changed instances in place of the regular ones.

Instances of a series that were never touched have no row; they are made here, with the ids that the API gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from calendar_env.server.errors import invalid
from calendar_env.server.records import Event
from calendar_env.server.recurrence import (
    instance_end,
    instance_start,
    instance_suffix,
    series,
    suffix_instance,
)
from calendar_env.server.tables import Tables
from calendar_env.server.times import LAST_YEAR, UTC, is_day, seconds_of

MOST_AT_ONCE = 5000
"""Instances that one call looks at."""

_SLACK = timedelta(days=2)  # a day begins at other moments in other zones


class Budget:
    """How many instances a call may still look at.

    Args:
        most: So many in all.
    """

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = self._left = most

    def spend(self, count: int = 1) -> None:
        """Take some of it.

        Raises:
            CalendarError: Nothing is left.
        """
        self._left -= count
        if self._left < 0:
            raise invalid(
                f"This would look at more than {self._most} instances of series. "
                "Narrow timeMin and timeMax, or ask for fewer calendars."
            )


@dataclass(frozen=True)
class Window:
    """A span of time, in seconds since 1970: what ends after ``after`` and starts before ``before``."""

    after: int | None = None
    before: int | None = None

    def holds(self, start: int, end: int) -> bool:
        """Whether a span overlaps; one of no length does where it lies inside."""
        if self.before is not None and start >= self.before:
            return False
        return self.after is None or end > self.after or (start == end and end >= self.after)


def holds_event(window: Window, event: Event, day_zone: str) -> bool:
    """Whether an event that is no series lies in a window."""
    return window.holds(seconds_of(event.start, day_zone), seconds_of(event.end, day_zone))


def instance_of(parent: Event, instance: datetime) -> Event:
    """One untouched instance of a series, as an event of its own."""
    event = parent.copy()
    begin = instance_start(instance, parent.start)
    event.body = {**event.body, "start": begin, "end": instance_end(begin, parent.start, parent.end)}
    del event.body["recurrence"]
    suffix = instance_suffix(begin)
    event.id, event.recurring_event_id, event.original_start = f"{parent.id}_{suffix}", parent.id, suffix
    return event


def instances_of(
    tables: Tables, parent: Event, window: Window, day_zone: str, *, calendar_id: str | None = None
) -> Iterator[Event]:
    """Instances of a series in a window, untouched and changed ones (cancelled too), not in order.

    Args:
        tables: Where they are.
        parent: The series.
        window: Which instances; one without an end goes on to the last year there is.
        day_zone: The zone in which whole days begin.
        calendar_id: Only changed instances that are on this calendar; all if None.
    """
    changed = tables.exceptions(parent.id)
    for event in changed:
        if calendar_id is not None and not is_on(event, calendar_id):
            continue
        if holds_event(window, event, day_zone):
            yield event
    touched = {event.original_start for event in changed}
    duration = seconds_of(parent.end, day_zone) - seconds_of(parent.start, day_zone)
    first, last = datetime(1969, 1, 1, tzinfo=UTC), datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC)
    if window.after is not None:
        first = max(first, datetime.fromtimestamp(window.after - max(duration, 0), UTC) - _SLACK)
    if window.before is not None:
        last = min(last, datetime.fromtimestamp(window.before, UTC) + _SLACK)
    if is_day(parent.start):
        first, last = first.replace(tzinfo=None), last.replace(tzinfo=None)
    for instance in series(parent.body["recurrence"], parent.start).between(first, last):
        event = instance_of(parent, instance)
        if event.original_start in touched:
            continue
        if holds_event(window, event, day_zone):
            yield event


def is_on(event: Event, calendar_id: str) -> bool:
    """Whether an event is on a calendar: it is the organizer's, or a guest's who kept it."""
    guest = event.guest(calendar_id)
    return event.calendar_id == calendar_id or (guest is not None and not guest.removed)


def occurrences(
    tables: Tables, calendar_id: str, window: Window, day_zone: str, budget: Budget | None = None
) -> Iterator[Event]:
    """All that is on a calendar in a window, series as their instances; cancelled ones too, and not in order.

    Raises:
        CalendarError: It is more than the budget, where there is one.
    """
    events = tables.events_on(calendar_id, window.after, window.before)
    expanded = {event.id for event in events if event.is_series and event.status != "cancelled"}
    for event in events:
        if event.id in expanded:
            for instance in instances_of(tables, event, window, day_zone, calendar_id=calendar_id):
                if budget is not None:
                    budget.spend()
                yield instance
        # A changed instance comes with its series, where that is on the calendar too.
        elif event.recurring_event_id not in expanded and holds_event(window, event, day_zone):
            yield event


def find_event(tables: Tables, event_id: str) -> Event | None:
    """The event of that id: a row, or an untouched instance of a series."""
    event = tables.event(event_id)
    if event is not None or "_" not in event_id:
        return event
    series_id, _, suffix = event_id.rpartition("_")
    parent = tables.event(series_id)
    if parent is None or not parent.is_series:
        return None
    instance = suffix_instance(suffix, parent.start)
    if instance is None or instance not in series(parent.body["recurrence"], parent.start):
        return None
    event = instance_of(parent, instance)
    return event if event.id == event_id else None


def transparency_on(event: Event, calendar_id: str) -> str:
    """Whether an event blocks time on a calendar: a guest may have set its own."""
    guest = event.guest(calendar_id)
    own = guest.own if guest is not None and calendar_id != event.calendar_id else {}
    return own.get("transparency") or event.body.get("transparency") or "opaque"


def is_busy(event: Event, calendar_id: str) -> bool:
    """Whether an event blocks time on a calendar: it takes place, is not shown as free, and was not declined."""
    if event.status == "cancelled" or transparency_on(event, calendar_id) == "transparent":
        return False
    guest = event.guest(calendar_id)
    return guest is None or guest.response != "declined"


def busy_spans(
    tables: Tables,
    calendar_id: str,
    window: Window,
    day_zone: str,
    *,
    without: str | None = None,
    budget: Budget | None = None,
) -> list[tuple[int, int]]:
    """When a calendar is busy in a window, in order, overlapping and touching spans as one.

    Args:
        tables: Where it is.
        calendar_id: The calendar.
        window: Spans are cut to it.
        day_zone: The zone in which whole days begin.
        without: An event that does not count, with all its instances.
        budget: How many instances may be looked at; any number if None.
    """
    spans: list[tuple[int, int]] = []
    for event in occurrences(tables, calendar_id, window, day_zone, budget):
        if is_busy(event, calendar_id) and without not in (event.id, event.recurring_event_id or ""):
            spans.append((seconds_of(event.start, day_zone), seconds_of(event.end, day_zone)))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        start = start if window.after is None else max(start, window.after)
        end = end if window.before is None else min(end, window.before)
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
