"""A calendar's events as the single meetings that people sit in: series expanded, exceptions put in their place.

The tasks compare calendars by occurrences, so that two ways of writing the same thing (an EXDATE or a cancelled
instance, a series that was split or one with many exceptions) count as the same. Recurrence and time zones are
`dateutil`'s and `zoneinfo`'s; nothing is counted by hand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from dateutil.rrule import rrule, rruleset, rrulestr

from calendar_env.server.times import MOST_INSTANCES

_EARLIEST = datetime(1900, 1, 1)
_FOLLOWED = timedelta(days=15 * 365)
"""How far a series is followed past what matters: what goes on for so long has no end that anybody plans for."""

Key = tuple[str, str]
"""Names an occurrence: the id of the event or series, and the start it has by its series' rule ("" for no series)."""


@dataclass(frozen=True)
class Occurrence:
    """One meeting.

    Attributes:
        key: Its name, which a move does not change.
        start: When it begins, in UTC; midnight UTC of its first day where it lasts whole days.
        end: When it ends, in UTC.
        whole_days: Whether it has dates and no times.
        event: The event as the API gives it: the single event, the series, or the exception.
        identifier: The id by which the API calls this occurrence.
    """

    key: Key
    start: datetime
    end: datetime
    whole_days: bool
    event: Mapping[str, Any]
    identifier: str


def moment(value: Mapping[str, Any], zone: str = "UTC") -> datetime:
    """The instant, in UTC, of a ``start`` or ``end`` of the API; a date is midnight UTC."""
    if "date" in value:
        return datetime.fromisoformat(value["date"]).replace(tzinfo=timezone.utc)
    return _parsed(value["dateTime"], value.get("timeZone") or zone)


@lru_cache(maxsize=65536)
def _parsed(text: str, zone: str) -> datetime:
    parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=ZoneInfo(zone))).astimezone(timezone.utc)


def occurrences(
    events: Mapping[str, Mapping[str, Any]], begin: datetime, end: datetime, whole: Collection[str] = ()
) -> list[Occurrence]:
    """All occurrences that overlap ``[begin, end)``, cancelled ones left out.

    Args:
        events: Events by id in the API's shape; exceptions are whole events that also carry ``recurringEventId`` and
            ``originalStartTime``.
        begin: An aware time.
        end: An aware time.
        whole: Ids of events and series of which all occurrences are wanted, as far as a series is followed.
    """
    exceptions: dict[str, dict[datetime, tuple[str, Mapping[str, Any]]]] = {}
    for identifier, event in events.items():
        if "recurringEventId" in event:
            original = moment(event["originalStartTime"])
            exceptions.setdefault(event["recurringEventId"], {})[original] = (identifier, event)
    found: list[Occurrence] = []
    for identifier, event in events.items():
        if "recurringEventId" in event or event.get("status") == "cancelled":
            continue
        if not event.get("recurrence"):
            found.append(_occurrence((identifier, ""), event, identifier))
            continue
        own = exceptions.get(identifier, {})
        length = moment(event["end"]) - moment(event["start"])
        for start in _starts(event, begin, end, length, whole=identifier in whole):
            if start in own:
                instance_id, exception = own[start]
                if exception.get("status") != "cancelled":
                    found.append(_occurrence((identifier, start.isoformat()), exception, instance_id))
                continue
            days = "date" in event["start"]
            instance_id = f"{identifier}_{start:%Y%m%d}" if days else f"{identifier}_{start:%Y%m%dT%H%M%SZ}"
            found.append(Occurrence((identifier, start.isoformat()), start, start + length, days, event, instance_id))
    return [each for each in found if each.key[0] in whole or (each.start < end and each.end > begin)]


def _occurrence(key: Key, event: Mapping[str, Any], identifier: str) -> Occurrence:
    return Occurrence(key, moment(event["start"]), moment(event["end"]), "date" in event["start"], event, identifier)


def _starts(
    event: Mapping[str, Any], begin: datetime, end: datetime, length: timedelta, *, whole: bool
) -> Iterable[datetime]:
    """Starts by the rule, in UTC. An exception may have been moved far, so a margin of two weeks is looked through."""
    margin = timedelta(days=14)
    zone = ZoneInfo("UTC") if "date" in event["start"] else ZoneInfo(event["start"].get("timeZone") or "UTC")
    first = moment(event["start"]).astimezone(zone).replace(tzinfo=None)
    low = (begin - margin - length).astimezone(zone).replace(tzinfo=None)
    high = (end + margin).astimezone(zone).replace(tzinfo=None)
    if whole:
        low, high = _EARLIEST, max(first, high) + _FOLLOWED
    starts = _local_starts(tuple(event["recurrence"]), first, zone, low, high)
    return [start.replace(tzinfo=zone).astimezone(timezone.utc) for start in starts]


@lru_cache(maxsize=4096)
def _local_starts(
    lines: tuple[str, ...], first: datetime, zone: ZoneInfo, low: datetime, high: datetime
) -> tuple[datetime, ...]:
    rules = rruleset()
    for line in lines:
        name, _, value = line.partition(":")
        if name == "RRULE":
            rule = rrulestr(_until_in(value, zone), dtstart=first)
            assert isinstance(rule, rrule)
            rules.rrule(rule)
        else:
            zone_of_line = re.search(r"TZID=([^;:]+)", name)
            for text in value.split(","):
                local = _local_time(text, zone, ZoneInfo(zone_of_line[1]) if zone_of_line else zone, first)
                (rules.exdate if name.startswith("EXDATE") else rules.rdate)(local)
    # As far as the API has instances of a series, and no further.
    return tuple(
        start for start in takewhile(lambda start: start <= high, islice(rules, MOST_INSTANCES)) if start >= low
    )


def _until_in(rule: str, zone: ZoneInfo) -> str:
    """The rule with its UNTIL as a local time, since rules are expanded on local times."""

    def local(found: re.Match[str]) -> str:
        text = found[1]
        if not text.endswith("Z"):
            return f"UNTIL={text}" if "T" in text else f"UNTIL={text}T235959"
        until = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        return f"UNTIL={until.astimezone(zone):%Y%m%dT%H%M%S}"

    return re.sub(r"UNTIL=([0-9TZ]+)", local, rule)


def _local_time(text: str, zone: ZoneInfo, written_in: ZoneInfo, first: datetime) -> datetime:
    if "T" not in text:
        return datetime.combine(datetime.strptime(text, "%Y%m%d").date(), first.time())
    if text.endswith("Z"):
        return (
            datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).astimezone(zone).replace(tzinfo=None)
        )
    return datetime.strptime(text, "%Y%m%dT%H%M%S").replace(tzinfo=written_in).astimezone(zone).replace(tzinfo=None)


def local_day(value: date, zone: str) -> tuple[datetime, datetime]:
    """The day's begin and end in that zone, in UTC."""
    start = datetime.combine(value, datetime.min.time(), ZoneInfo(zone))
    end = datetime.combine(value + timedelta(days=1), datetime.min.time(), ZoneInfo(zone))
    return start.astimezone(timezone.utc), end.astimezone(timezone.utc)
