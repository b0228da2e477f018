"""Times of events: what the API's ``{"dateTime", "timeZone"}`` and ``{"date"}`` mean, and when they are.

A time with a clock is kept with its offset and its zone; a day has neither, and begins when the calendar that shows it
says so. A clock time that a zone skips is read with the offset before the change, and one that comes twice is the
first, as RFC 5545 has it (section 3.3.5). Everything else about zones is ``zoneinfo``'s, about ISO 8601 ``dateutil``'s.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from dateutil.parser import isoparse

from calendar_env.server.errors import invalid, required

EventTime = dict[str, str]
"""``{"dateTime": "2026-03-02T09:00:00+01:00", "timeZone": "Europe/Berlin"}`` or ``{"date": "2026-03-02"}``."""

UTC = timezone.utc
FIRST_YEAR, LAST_YEAR = 1970, 2100
"""Years that events may lie in. The last one also ends every series."""
MOST_INSTANCES = 1000
"""Instances of a series; one without an end has its first ones, daily for almost three years."""


@lru_cache(maxsize=1024)
def zone(name: str) -> zoneinfo.ZoneInfo:
    """The time zone of that name.

    Raises:
        CalendarError: There is none.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise invalid(f"Invalid time zone '{name:.60}'. Use a name of the IANA list, such as Europe/Berlin.") from error


def read_time(name: str, value: Any, default_zone: str) -> EventTime:
    """An event's start or end, as it is kept.

    Args:
        name: What an error calls it.
        value: The API's object, with ``date``, or with ``dateTime`` and perhaps ``timeZone``.
        default_zone: The zone where none is given.

    Raises:
        CalendarError: It is no such object, or names no time.
    """
    if not isinstance(value, Mapping):
        raise invalid(f"{name} must be an object: {{'dateTime': ..., 'timeZone': ...}} or {{'date': 'YYYY-MM-DD'}}.")
    day, clock = value.get("date"), value.get("dateTime")
    if (day is None) == (clock is None):
        raise invalid(f"{name} needs either 'date' (an all-day event) or 'dateTime', and not both.")
    if day is not None:
        return {"date": read_day(f"{name}.date", day).isoformat()}
    zone_name = value.get("timeZone") or default_zone
    return clock_time(read_instant(f"{name}.dateTime", clock, zone_name), zone_name)


def read_day(name: str, value: Any) -> date:
    """A day that was given as YYYY-MM-DD.

    Raises:
        CalendarError: It is none.
    """
    try:
        if not isinstance(value, str) or len(value) != 10:
            raise ValueError(value)
        day = date.fromisoformat(value)
    except ValueError as error:
        raise invalid(f"{name} must be a day written YYYY-MM-DD, not {value!r:.60}.") from error
    _require_year(name, day.year)
    return day


def read_instant(name: str, value: Any, default_zone: str | None = None) -> datetime:
    """A moment that was given as RFC 3339 text, aware of its zone.

    Args:
        name: What an error calls it.
        value: The text.
        default_zone: The zone of a text without an offset; None where an offset is required.

    Raises:
        CalendarError: It is none.
    """
    example = "2026-03-02T09:00:00+01:00"
    try:
        if not isinstance(value, str) or len(value) < 13 or value[10] not in "Tt ":
            raise ValueError(value)
        moment = isoparse(value.upper().replace(" ", "T"))
    except (ValueError, OverflowError) as error:
        raise invalid(f"{name} must be a date and time such as {example}, not {value!r:.60}.") from error
    _require_year(name, moment.year)
    moment = moment.replace(microsecond=0)
    if moment.tzinfo is not None:
        return moment
    if default_zone is None:
        raise invalid(f"{name} needs a time zone offset, such as {example} or ...Z; it was {value!r:.60}.")
    return at_local(moment, default_zone)


def at_local(clock: datetime, zone_name: str) -> datetime:
    """The moment when the clocks of a zone show a time: the first of two, or past the gap where they skip it."""
    local = zone(zone_name)
    return clock.replace(tzinfo=local, fold=0).astimezone(UTC).astimezone(local)


def clock_time(moment: datetime, zone_name: str) -> EventTime:
    """A moment as an event's time in a zone."""
    return {"dateTime": moment.astimezone(zone(zone_name)).isoformat(timespec="seconds"), "timeZone": zone_name}


def is_day(time: EventTime) -> bool:
    """Whether the time is a whole day."""
    return "date" in time


def moment_of(time: EventTime, day_zone: str) -> datetime:
    """When a time is.

    Args:
        time: The time.
        day_zone: The zone in which a day begins, where it is one.
    """
    if "date" in time:
        return at_local(datetime.fromisoformat(time["date"]), day_zone)
    return datetime.fromisoformat(time["dateTime"])


def seconds_of(time: EventTime, day_zone: str) -> int:
    """When a time is, in seconds since 1970 in UTC."""
    return int(moment_of(time, day_zone).timestamp())


def in_zone(time: EventTime, zone_name: str | None) -> EventTime:
    """A time as the clocks of another zone show it; a day stays that day."""
    if zone_name is None or "date" in time:
        return dict(time)
    return {**clock_time(datetime.fromisoformat(time["dateTime"]), zone_name), "timeZone": time["timeZone"]}


def check_range(start: EventTime, end: EventTime) -> None:
    """Refuse an event that ends before it begins, or that is half a day and half a time.

    Raises:
        CalendarError: It does.
    """
    if is_day(start) != is_day(end):
        raise invalid("start and end must both have 'date' (an all-day event) or both 'dateTime'.")
    if is_day(start):
        if end["date"] <= start["date"]:
            raise invalid(
                "The specified time range is empty. The end of an all-day event is the first day after it: "
                f"for {start['date']} alone, end.date is {shifted_day(start['date'], 1)}.",
                "timeRangeEmpty",
            )
    elif datetime.fromisoformat(end["dateTime"]) < datetime.fromisoformat(start["dateTime"]):
        raise invalid(
            f"The specified time range is empty: it ends at {end['dateTime']}, before it starts at "
            f"{start['dateTime']}. Give both start and end where an event is moved.",
            "timeRangeEmpty",
        )


def shifted_day(day: str, days: int) -> str:
    """The day so many days later."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def require_time_zone(name: str, value: Any) -> str:
    """A time zone's name that was given.

    Raises:
        CalendarError: There is no such zone.
    """
    if not value:
        raise required(name)
    zone(str(value))
    return str(value)


def _require_year(name: str, year: int) -> None:
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise invalid(f"{name} must lie in the years {FIRST_YEAR} to {LAST_YEAR}.")
