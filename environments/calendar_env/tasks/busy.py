"""When people are busy and when they work, from the events themselves: what the free/busy tool should also say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.occurrences import Occurrence, local_day

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

Span = tuple[datetime, datetime]


def response_of(event: Mapping[str, Any], email: str) -> str | None:
    """How that guest answered; None for who is no guest."""
    for guest in event.get("attendees", ()):
        if guest["email"] == email:
            return guest.get("responseStatus", "needsAction")
    return None


def takes_part(occurrence: Occurrence, email: str) -> bool:
    """Whether the occurrence stands in that calendar and was not declined there."""
    response = response_of(occurrence.event, email)
    if response is not None:
        return response != "declined"
    return occurrence.event["calendarId"] == email


def blocks(occurrence: Occurrence, email: str) -> bool:
    """Whether the occurrence makes that person (or room) busy: theirs, not declined, not shown as free."""
    return occurrence.event.get("transparency", "opaque") == "opaque" and takes_part(occurrence, email)


def busy_spans(found: Iterable[Occurrence], email: str, zone: str) -> list[Span]:
    """The times in UTC at which that person is busy; whole days are days of their time zone."""
    spans: list[Span] = []
    for each in found:
        if not blocks(each, email):
            continue
        if each.whole_days:
            last = (each.end - timedelta(days=1)).date()
            spans.append((local_day(each.start.date(), zone)[0], local_day(last, zone)[1]))
        else:
            spans.append((each.start, each.end))
    return sorted(spans)


def is_free(spans: Sequence[Span], start: datetime, end: datetime) -> bool:
    """Whether no span overlaps ``[start, end)``."""
    return not any(begin < end and finish > start for begin, finish in spans)


def works(hours: Mapping[str, Sequence[str]], zone: str, start: datetime, end: datetime) -> bool:
    """Whether ``[start, end)`` lies in one working day of those hours."""
    local_start, local_end = start.astimezone(ZoneInfo(zone)), end.astimezone(ZoneInfo(zone))
    day = hours.get(DAYS[local_start.weekday()])
    if day is None or local_start.date() != local_end.date():
        return False
    return day[0] <= f"{local_start:%H:%M}" and f"{local_end:%H:%M}" <= day[1]


def half_hours(first: datetime, days: int) -> Iterable[datetime]:
    """All full and half hours, in UTC, from ``first`` on."""
    start = first.astimezone(timezone.utc).replace(second=0, microsecond=0)
    if start.minute % 30:
        start += timedelta(minutes=30 - start.minute % 30)
    for step in range(days * 48):
        yield start + timedelta(minutes=30 * step)


def midnight(value: date, zone: str) -> datetime:
    """The day's begin in that zone."""
    return datetime.combine(value, datetime.min.time(), ZoneInfo(zone))
