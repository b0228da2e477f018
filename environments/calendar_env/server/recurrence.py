"""Series: which instances the lines RRULE, RDATE and EXDATE of an event stand for.

All that counts days is ``dateutil.rrule``'s. Rules count on the clocks of the start's zone, so that a meeting at nine
stays at nine when clocks change. Rules finer than a day are refused, as is what leaves no instance at all.

Source: RFC 5545, sections 3.3.10 and 3.8.5.
"""

from __future__ import annotations

import heapq
import re
import threading
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache

from dateutil.parser import isoparse
from dateutil.rrule import rrule, rrulestr

from calendar_env.server.errors import invalid
from calendar_env.server.times import (
    LAST_YEAR,
    MOST_INSTANCES,
    UTC,
    EventTime,
    at_local,
    clock_time,
    is_day,
    shifted_day,
    zone,
)

_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_PARTS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO")
_ALL_PARTS = (*_PARTS, "BYSETPOS")
_WHOLE_TIME = timedelta(days=366 * 150)
_LONGEST_GAP = timedelta(days=366 * 12)
_MAX_LINES = 50
_MAX_DATES = 500
_LONGEST_RULE = 300
_LONGEST_INTERVAL = 9999


class Series:
    """The instances of one series, found as far as they were asked for.

    Instances are moments in UTC, and for whole days naive midnights: clock times of one zone cannot be compared where
    clocks change.

    Attributes:
        start: The series' own start, as an instance.
        is_cut: Whether instances past the most that a series has were left out, as far as was asked.
    """

    def __init__(self, lines: tuple[str, ...], start: EventTime) -> None:
        self.start = as_instance(start)
        self._iterator = _instances(lines, start)
        self._found: list[datetime] = []
        self._done = False
        self.is_cut = False
        # Sessions share a series, and run in threads where a server is told so.
        self._lock = threading.Lock()

    def between(self, after: datetime, before: datetime) -> list[datetime]:
        """Instances that start from ``after`` on and earlier than ``before``, in order."""
        with self._lock:
            while not self._done and (not self._found or self._found[-1] < before):
                self._find_next()
            return self._found[bisect_left(self._found, after) : bisect_left(self._found, before)]

    def has_any(self) -> bool:
        """Whether there is any instance at all."""
        with self._lock:
            if not self._found and not self._done:
                self._find_next()
            return bool(self._found)

    def _find_next(self) -> None:
        instance = next(self._iterator, None)
        if instance is None or instance.year > LAST_YEAR:
            self._done = True
        elif len(self._found) == MOST_INSTANCES:
            self._done = self.is_cut = True
        else:
            self._found.append(instance)

    def __contains__(self, instance: datetime) -> bool:
        return self.between(instance, instance + timedelta(seconds=1)) == [instance]


@lru_cache(maxsize=1024)
def _cached(lines: tuple[str, ...], day: str | None, clock: str | None, zone_name: str | None) -> Series:
    start = {"date": day} if day else {"dateTime": clock or "", "timeZone": zone_name or ""}
    return Series(lines, start)


def series(lines: Iterable[str], start: EventTime) -> Series:
    """The series that an event's lines stand for."""
    return _cached(tuple(lines), start.get("date"), start.get("dateTime"), start.get("timeZone"))


def as_instance(start: EventTime) -> datetime:
    """An event's time as series count it: in UTC, or for a whole day the naive midnight."""
    if is_day(start):
        return datetime.fromisoformat(start["date"])
    return datetime.fromisoformat(start["dateTime"]).astimezone(UTC)


def instance_start(instance: datetime, start: EventTime) -> EventTime:
    """An instance as an event's time, in the zone of the series' start."""
    return {"date": instance.date().isoformat()} if is_day(start) else clock_time(instance, start["timeZone"])


def instance_end(begin: EventTime, start: EventTime, end: EventTime) -> EventTime:
    """When an instance ends: as long after its start as the first one does."""
    if is_day(start):
        days = (date.fromisoformat(end["date"]) - date.fromisoformat(start["date"])).days
        return {"date": shifted_day(begin["date"], days)}
    duration = datetime.fromisoformat(end["dateTime"]) - datetime.fromisoformat(start["dateTime"])
    return clock_time(datetime.fromisoformat(begin["dateTime"]) + duration, end["timeZone"])


def instance_suffix(begin: EventTime) -> str:
    """What an instance's id ends with: its start in UTC, or its day."""
    if is_day(begin):
        return begin["date"].replace("-", "")
    return datetime.fromisoformat(begin["dateTime"]).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def suffix_instance(suffix: str, start: EventTime) -> datetime | None:
    """The instance that an id ends with, as series count it; None where that is no time."""
    try:
        moment = isoparse(suffix)
    except ValueError:
        return None
    if is_day(start):
        return moment if len(suffix) == 8 and moment.tzinfo is None else None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None


def shifted_instance(suffix: str, old_start: EventTime, new_start: EventTime) -> datetime | None:
    """Where an instance goes when its series is moved: by as much as the series' start, on the clocks of its zone.

    Args:
        suffix: What the instance's id ended with.
        old_start: The series' start before.
        new_start: The series' start now.

    Returns:
        The instance as the series counts it now; None where whole days became clock times, or the other way round.
    """
    instance = suffix_instance(suffix, old_start)
    if instance is None or is_day(old_start) != is_day(new_start):
        return None
    moved = _clock(new_start) - _clock(old_start)
    if is_day(old_start):
        return instance + moved
    clock = instance.astimezone(zone(old_start["timeZone"])).replace(tzinfo=None, fold=0) + moved
    return at_local(clock, new_start["timeZone"]).astimezone(UTC)


def read_recurrence(lines: object, start: EventTime) -> list[str]:
    """The lines of an event's ``recurrence``, as they are kept.

    Raises:
        CalendarError: They cannot be read, or leave no instance.
    """
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise invalid('recurrence must be a list of lines such as ["RRULE:FREQ=WEEKLY;BYDAY=MO"].')
    if len(lines) > _MAX_LINES:
        raise invalid(f"recurrence has {len(lines)} lines; {_MAX_LINES} are allowed.")
    kept = [_read_line(line.strip(), start) for line in lines]
    if not kept:
        return []
    if sum(line.startswith("RRULE") for line in kept) > 1 or len(set(kept)) < len(kept):
        raise invalid("recurrence takes one RRULE, and each line once. Make another series for a second rule.")
    if sum(line.count(",") + 1 for line in kept if not line.startswith("RRULE")) > _MAX_DATES:
        raise invalid(f"recurrence has more than {_MAX_DATES} dates in its RDATE and EXDATE lines.")
    if all(line.startswith("EXDATE") for line in kept):
        raise invalid("recurrence has only EXDATE lines. It needs an RRULE or RDATE too, such as RRULE:FREQ=DAILY.")
    try:
        made = series(kept, start)
        found = made.has_any()
        if any("UNTIL=" in line for line in kept):
            made.between(made.start, made.start + _WHOLE_TIME)
    except (ValueError, OverflowError) as error:
        raise invalid(f"recurrence cannot be read: {error}.") from error
    if not found:
        raise invalid(f"recurrence {kept} leaves no instance from {start.get('date') or start.get('dateTime')} on.")
    if made.is_cut and any("UNTIL=" in line for line in kept):
        raise invalid(f"recurrence has more than {MOST_INSTANCES} instances. Choose an earlier UNTIL.")
    return kept


def _read_line(line: str, start: EventTime) -> str:
    head, colon, value = line.partition(":")
    name = head.partition(";")[0].upper()
    if not colon or name not in ("RRULE", "RDATE", "EXDATE"):
        raise invalid(f"recurrence line {line!r:.80} must begin with RRULE:, RDATE: or EXDATE: (no DTSTART or EXRULE).")
    if name == "RRULE":
        return f"RRULE:{_read_rule(value.upper(), start)}"
    # The zone's name keeps its letters as they are.
    given = dict(part.partition("=")[::2] for part in head.split(";")[1:])
    zone_name = next((text for key, text in given.items() if key.upper() == "TZID"), None)
    if not is_day(start):
        zone(zone_name or start["timeZone"])
    dates = value.split(",")
    if len(dates) > _MAX_DATES:
        raise invalid(f"{name} has {len(dates)} dates; {_MAX_DATES} are allowed in a line.")
    moments = [_read_date(name, text.strip(), start, zone_name) for text in dates]
    if is_day(start):
        return f"{name};VALUE=DATE:" + ",".join(moment.strftime("%Y%m%d") for moment in moments)
    return f"{name}:" + ",".join(moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ") for moment in moments)


def _read_rule(text: str, start: EventTime) -> str:
    if len(text) > _LONGEST_RULE:
        raise invalid(f"RRULE is longer than {_LONGEST_RULE} characters.")
    parts: dict[str, str] = {}
    for part in text.strip().strip(";").split(";"):
        key, equals, value = part.partition("=")
        if not equals or key not in _ALL_PARTS or key in parts:
            raise invalid(f"RRULE part {part!r:.60} cannot be used. Parts are {', '.join(_ALL_PARTS)}, each once.")
        parts[key] = value
    if parts.get("FREQ") not in _FREQUENCIES:
        raise invalid(f"RRULE needs FREQ, one of {', '.join(_FREQUENCIES)}.")
    if "COUNT" in parts and "UNTIL" in parts:
        raise invalid("RRULE must not have both COUNT and UNTIL.")
    for key in ("COUNT", "INTERVAL"):
        most = MOST_INSTANCES if key == "COUNT" else _LONGEST_INTERVAL
        # Digits of other scripts, and numbers of a thousand digits, are none.
        if key in parts and not (re.fullmatch("[0-9]{1,4}", parts[key]) and 0 < int(parts[key]) <= most):
            raise invalid(f"RRULE's {key} must be a number from 1 to {most}, not {parts[key]!r:.40}.")
    if "UNTIL" in parts:
        parts["UNTIL"] = _read_until(parts["UNTIL"], start)
    _refuse_what_never_fires(parts)
    return ";".join(f"{key}={value}" for key, value in parts.items())


def _refuse_what_never_fires(parts: dict[str, str]) -> None:
    """Refuse what ``dateutil`` would look for until the year 9999, for seconds: the library has no bound of its own."""
    frequency = parts["FREQ"]
    if frequency in ("DAILY", "WEEKLY"):
        for key in ("BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS"):
            if key in parts:
                raise invalid(
                    f"RRULE's {key} needs FREQ=MONTHLY or FREQ=YEARLY; FREQ={frequency} takes BYDAY and BYMONTH."
                )
    if frequency == "DAILY" and "BYDAY" in parts and int(parts.get("INTERVAL", "1")) % 7 == 0:
        raise invalid("RRULE with FREQ=DAILY, BYDAY and whole weeks as INTERVAL: write it with FREQ=WEEKLY.")
    if frequency == "MONTHLY" and ("BYYEARDAY" in parts or "BYWEEKNO" in parts):
        raise invalid("RRULE's BYYEARDAY and BYWEEKNO need FREQ=YEARLY.")
    days, months = _numbers(parts, "BYMONTHDAY"), _numbers(parts, "BYMONTH")
    longest = max((monthrange(2024, month)[1] for month in months if 1 <= month <= 12), default=31)
    if days and min(map(abs, days)) > longest:
        raise invalid(f"RRULE's BYMONTHDAY={parts['BYMONTHDAY']} is in no month of BYMONTH={parts.get('BYMONTH')}.")
    candidates = 5 * len(parts["BYDAY"].split(",")) if "BYDAY" in parts else len(days) or 1
    positions = _numbers(parts, "BYSETPOS")
    if frequency == "MONTHLY" and positions and min(map(abs, positions)) > candidates:
        raise invalid(f"RRULE's BYSETPOS={parts['BYSETPOS']} is past the last day that the rule has in a month.")


def _numbers(parts: dict[str, str], key: str) -> list[int]:
    try:
        return [int(text) for text in parts[key].split(",")] if key in parts else []
    except ValueError as error:
        raise invalid(f"RRULE's {key} must be numbers with commas between them, not {parts[key]!r:.40}.") from error


def _read_until(text: str, start: EventTime) -> str:
    try:
        moment = isoparse(text)
    except ValueError as error:
        raise invalid(f"RRULE's UNTIL must be written 20261231T235959Z or 20261231, not {text!r:.40}.") from error
    if is_day(start):
        return moment.strftime("%Y%m%d")
    if len(text) == 8:
        # A day, where RFC 5545 wants a moment: the last one of that day, as calendars read it.
        moment = at_local(moment.replace(hour=23, minute=59, second=59), start["timeZone"])
    elif moment.tzinfo is None:
        moment = at_local(moment, start["timeZone"])
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def _read_date(name: str, text: str, start: EventTime, zone_name: str | None) -> datetime:
    example = "20260302" if is_day(start) else "20260302T080000Z"
    try:
        moment = isoparse(text)
        if is_day(start) != (len(text) in (8, 10)):
            raise ValueError(text)
    except ValueError as error:
        kind = "a day, as the event is a whole day" if is_day(start) else "a date and time, as the event has one"
        raise invalid(f"{name} must be {kind}, such as {name}:{example}; it was {text!r:.40}.") from error
    if is_day(start) or moment.tzinfo is not None:
        return moment
    return at_local(moment, zone_name or start["timeZone"])


def _instances(lines: tuple[str, ...], start: EventTime) -> Iterator[datetime]:
    """The instances in order, each once."""
    rules: list[rrule] = []
    dates: list[datetime] = []
    left_out: set[datetime] = set()
    begin = _clock(start)
    for line in lines:
        head, _, value = line.partition(":")
        if head == "RRULE":
            rules.append(_rule(value, start))
        elif head.startswith("RDATE"):
            dates += map(isoparse, value.split(","))
        else:
            left_out.update(map(isoparse, value.split(",")))

    def moments(rule: rrule) -> Iterator[datetime]:
        if is_day(start):
            yield from rule
        for clock in () if is_day(start) else rule:
            # The second of two equal clock times is meant only by a start that says so by its offset.
            yield as_instance(start) if clock == begin else at_local(clock, start["timeZone"]).astimezone(UTC)

    last: datetime | None = None
    for instance in heapq.merge(*map(moments, rules), sorted(dates)):
        if instance != last and instance not in left_out:
            yield instance
        last = instance


def _clock(start: EventTime) -> datetime:
    """What the clocks of the start's zone show, without a zone: what rules count from."""
    if is_day(start):
        return datetime.fromisoformat(start["date"])
    return datetime.fromisoformat(start["dateTime"]).astimezone(zone(start["timeZone"])).replace(tzinfo=None, fold=0)


def _rule(text: str, start: EventTime) -> rrule:
    begin = _clock(start)
    parts = dict(part.split("=", 1) for part in text.split(";"))
    if "UNTIL" in parts and not is_day(start):
        local = isoparse(parts["UNTIL"]).astimezone(zone(start["timeZone"])).replace(tzinfo=None)
        parts["UNTIL"] = local.strftime("%Y%m%dT%H%M%S")
    try:
        rule = rrulestr(";".join(f"{key}={value}" for key, value in parts.items()), dtstart=begin)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise invalid(f"RRULE {text!r:.100} cannot be read: {error}.") from error
    if not isinstance(rule, rrule):
        raise invalid(f"RRULE {text!r:.100} is not one rule.")
    # A rule that never fires would be followed to the year 9999: it is asked for its first instance within a bound.
    if next(iter(rule.replace(count=None, until=begin + _LONGEST_GAP)), None) is None:
        raise invalid(f"RRULE {text!r:.100} has no instance within twelve years of its start.")
    return rule
