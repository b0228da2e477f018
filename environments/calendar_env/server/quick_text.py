"""Events from one line of text, by a narrow grammar: what is not understood to the last word is refused.

    TITLE [on] DATE [at] TIME [for LENGTH | to TIME]

DATE is 2026-03-05, 5 March, 5 March 2026, today, tomorrow, or a weekday, which is the next one after today. A date
without a year is the next one from today on. TIME is 15:00, 3pm or 3:30 pm; "15:00-16:00" is a time and its end. LENGTH
is "45 minutes", "2 hours" or "1.5 hours". The pieces themselves are read by `dateutil`.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from dateutil import parser
from dateutil.relativedelta import relativedelta

from calendar_env.server.errors import CalendarError, invalid
from calendar_env.server.times import FIRST_YEAR, LAST_YEAR

LONGEST_TEXT = 1024

_WEEKDAYS = tuple(name.lower() for name in calendar.day_name)
_MONTHS = "|".join((*calendar.month_name[1:], *calendar.month_abbr[1:]))
_DAY_AND_MONTH = rf"[0-9]{{1,2}}\ (?:{_MONTHS})(?:\ [0-9]{{4}})?"
_DATE = rf"(?:[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|{_DAY_AND_MONTH}|today|tomorrow|{'|'.join(_WEEKDAYS)})"
_TIME = r"(?:(?:1[0-2]|0?[1-9])(?::[0-9]{2})?\ ?[ap]m|[0-9]{1,2}:[0-9]{2})"
_LENGTH = r"(?P<count>[0-9]{1,3}(?:\.[0-9])?)\ ?(?P<unit>minutes?|mins?|hours?|h)"
_LINE = re.compile(
    rf"(?P<title>.+?)\ (?:on\ )?(?P<day>{_DATE}),?(?:\ at|\ from)?\ (?P<start>{_TIME})"
    rf"(?:\ for\ {_LENGTH}|(?:\ to\ |\ until\ |\ ?[-\u2013]\ ?)(?P<end>{_TIME}))?",
    re.IGNORECASE | re.VERBOSE,
)
_NO_TITLE = re.compile(rf"(?<!\w)(?:{_DATE}|{_TIME}|{_MONTHS}|(?:on|at|from)$)(?!\w)", re.IGNORECASE | re.VERBOSE)


@dataclass(frozen=True)
class QuickEvent:
    """What a line says.

    Attributes:
        title: The event's title.
        start: When it starts, by the calendar's clocks.
        end: When it ends; None where the line does not tell.
        length: How long it takes; None where the line does not tell.
    """

    title: str
    start: datetime
    end: datetime | None = None
    length: timedelta | None = None


def read_quick_text(text: str, now: datetime) -> QuickEvent:
    """What a line of text says.

    Args:
        text: The line.
        now: What the calendar's clocks show, without a zone.

    Raises:
        CalendarError: Some of it is not understood, or it is over already.
    """
    if len(text) > LONGEST_TEXT:
        raise invalid(f"text is longer than {LONGEST_TEXT} characters. Use events_insert.")
    line = _LINE.fullmatch(" ".join(text.split()))
    if line is None or _NO_TITLE.search(line["title"]):
        raise _not_understood(text)
    try:
        start = _moment(_day(line["day"].lower(), now.date()), line["start"])
        end = None if line["end"] is None else _moment(start.date(), line["end"])
    except (ValueError, OverflowError) as error:
        raise _not_understood(text) from error
    length = None
    if line["count"] is not None:
        minutes = 60 if line["unit"].lower().startswith("h") else 1
        length = timedelta(minutes=minutes * float(line["count"]))
    if start < now:
        raise invalid(f"{text!r:.100} is over: it would be {start:%Y-%m-%d %H:%M}. Use events_insert for the past.")
    if (end is not None and end <= start) or length == timedelta():
        raise invalid(f"{text!r:.100} ends before it starts. Use events_insert for what goes past midnight.")
    return QuickEvent(line["title"], start, end, length)


def _day(text: str, today: date) -> date:
    if text in ("today", "tomorrow"):
        return today + timedelta(days=text == "tomorrow")
    if text in _WEEKDAYS:
        return today + timedelta(days=(_WEEKDAYS.index(text) - today.weekday() - 1) % 7 + 1)
    # Read as of a leap year's first day, so that 29 February is one; other years are tried from this one on.
    day = parser.parse(text, default=datetime(2000, 1, 1)).date()
    if re.search("[0-9]{4}", text):
        if not FIRST_YEAR <= day.year <= LAST_YEAR:
            raise ValueError(text)
        return day
    years = (day + relativedelta(year=today.year + ahead) for ahead in range(9))
    return next(each for each in years if each >= today and each.day == day.day)


def _moment(day: date, clock: str) -> datetime:
    return parser.parse(clock, default=datetime(day.year, day.month, day.day))


def _not_understood(text: str) -> CalendarError:
    return invalid(
        f"{text!r:.100} is not understood. Write TITLE on DATE at TIME, and if need be for LENGTH or to TIME, such as "
        '"Lunch on 5 March 2026 at 12:30 for 45 minutes"; DATE may be 2026-03-05, today, tomorrow or a weekday, and '
        "the title holds no date or time. Or use events_insert."
    )
