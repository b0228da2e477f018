"""Series have the instances that dateutil has, at the same time by the clock whatever the clocks do."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from calendar_env.server.errors import CalendarError
from calendar_env.server.recurrence import (
    instance_end,
    instance_start,
    instance_suffix,
    read_recurrence,
    series,
    suffix_instance,
)
from calendar_env.server.times import at_local, moment_of, read_time, seconds_of
from dateutil.rrule import rrulestr
from hypothesis import given
from hypothesis import strategies as st

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo", "UTC")
FAR = datetime(2031, 1, 1, tzinfo=timezone.utc)
EARLY = datetime(2000, 1, 1, tzinfo=timezone.utc)

clocks = st.datetimes(datetime(2019, 1, 1), datetime(2029, 12, 31)).map(
    lambda clock: clock.replace(second=0, microsecond=0)
)
days = st.lists(st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"]), min_size=1, max_size=4, unique=True)


@st.composite
def rules(draw: st.DrawFn) -> str:
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={frequency}", f"COUNT={draw(st.integers(1, 10 if frequency == 'YEARLY' else 30))}"]
    if draw(st.booleans()):
        # Not seven days with BYDAY, which is refused: it may never fire.
        parts.append(f"INTERVAL={draw(st.integers(1, 6))}")
    if frequency == "MONTHLY" and draw(st.booleans()):
        parts.append(f"BYMONTHDAY={draw(st.sampled_from([1, 15, 31, -1]))}")
    elif frequency == "MONTHLY":
        parts += [f"BYDAY={','.join(draw(days))}", f"BYSETPOS={draw(st.sampled_from([1, 2, -1]))}"]
    elif draw(st.booleans()):
        parts.append(f"BYDAY={','.join(draw(days))}")
    return ";".join(parts)


@given(rule=rules(), clock=clocks, zone_name=st.sampled_from(ZONES))
def test_instances_are_dateutils_on_the_clocks_of_the_zone(rule: str, clock: datetime, zone_name: str) -> None:
    start = read_time("start", {"dateTime": clock.isoformat(), "timeZone": zone_name}, "UTC")
    shown = datetime.fromisoformat(start["dateTime"]).astimezone(ZoneInfo(zone_name)).replace(tzinfo=None)
    lines = read_recurrence([f"RRULE:{rule}"], start)
    far = EARLY + timedelta(days=365 * 200)
    ours = [instance_start(each, start)["dateTime"] for each in series(lines, start).between(EARLY, far)]
    expected = []
    for each in rrulestr(rule, dtstart=shown):
        # Where clocks skip the time, the one before the change is meant, as RFC 5545 has it.
        moment = each.replace(tzinfo=ZoneInfo(zone_name)).astimezone(timezone.utc)
        expected.append(moment.astimezone(ZoneInfo(zone_name)).isoformat(timespec="seconds"))
    assert ours == expected


@given(rule=rules(), day=st.dates(date(2019, 1, 1), date(2029, 12, 31)))
def test_whole_days_are_dateutils_and_know_no_zone(rule: str, day: date) -> None:
    start = {"date": day.isoformat()}
    lines = read_recurrence([f"RRULE:{rule}"], start)
    found = series(lines, start).between(datetime(2000, 1, 1), datetime(2300, 1, 1))
    assert found == list(rrulestr(rule, dtstart=datetime.combine(day, datetime.min.time())))


@given(rule=rules(), clock=clocks, zone_name=st.sampled_from(ZONES))
def test_an_instances_id_leads_back_to_it_and_it_is_as_long_as_the_first(
    rule: str, clock: datetime, zone_name: str
) -> None:
    start = read_time("start", {"dateTime": clock.isoformat(), "timeZone": zone_name}, "UTC")
    end = read_time("end", {"dateTime": (moment_of(start, "UTC") + timedelta(minutes=45)).isoformat()}, zone_name)
    lines = read_recurrence([f"RRULE:{rule}"], start)
    for each in series(lines, start).between(EARLY, FAR)[:10]:
        begin = instance_start(each, start)
        assert suffix_instance(instance_suffix(begin), start) == each
        assert each in series(lines, start)
        assert seconds_of(instance_end(begin, start, end), "UTC") - seconds_of(begin, "UTC") == 45 * 60


def test_a_meeting_at_nine_stays_at_nine_when_clocks_change() -> None:
    start = read_time("start", {"dateTime": "2026-03-23T09:00:00", "timeZone": "Europe/Berlin"}, "UTC")
    lines = read_recurrence(["RRULE:FREQ=WEEKLY;COUNT=2"], start)
    found = series(lines, start).between(EARLY, FAR)
    assert [instance_start(each, start)["dateTime"] for each in found] == [
        "2026-03-23T09:00:00+01:00",
        "2026-03-30T09:00:00+02:00",
    ]
    assert found[1] - found[0] == timedelta(days=7, hours=-1)


def test_a_skipped_time_is_moved_past_the_gap_and_a_double_one_is_the_first() -> None:
    assert at_local(datetime(2026, 3, 29, 2, 30), "Europe/Berlin").isoformat() == "2026-03-29T03:30:00+02:00"
    assert at_local(datetime(2026, 10, 25, 2, 30), "Europe/Berlin").isoformat() == "2026-10-25T02:30:00+02:00"
    second = read_time("start", {"dateTime": "2026-10-25T02:30:00+01:00", "timeZone": "Europe/Berlin"}, "UTC")
    assert second["dateTime"] == "2026-10-25T02:30:00+01:00"
    lines = read_recurrence(["RRULE:FREQ=DAILY;COUNT=2"], second)
    assert series(lines, second).between(EARLY, FAR)[0] == datetime(2026, 10, 25, 1, 30, tzinfo=timezone.utc)


def test_dates_are_added_and_left_out_in_the_zone_they_name() -> None:
    start = read_time("start", {"dateTime": "2026-03-02T09:00:00", "timeZone": "Europe/Berlin"}, "UTC")
    lines = read_recurrence(
        [
            "RRULE:FREQ=WEEKLY;COUNT=4",
            "EXDATE;TZID=Europe/Berlin:20260309T090000",
            "EXDATE:20260316T080000Z",
            "RDATE;TZID=America/New_York:20260317T120000",
        ],
        start,
    )
    found = [instance_start(each, start)["dateTime"] for each in series(lines, start).between(EARLY, FAR)]
    assert found == ["2026-03-02T09:00:00+01:00", "2026-03-17T17:00:00+01:00", "2026-03-23T09:00:00+01:00"]


def test_a_last_day_counts_as_a_whole_one() -> None:
    start = read_time("start", {"dateTime": "2026-03-02T22:30:00", "timeZone": "America/New_York"}, "UTC")
    lines = read_recurrence(["RRULE:FREQ=DAILY;UNTIL=20260304"], start)
    assert lines == ["RRULE:FREQ=DAILY;UNTIL=20260305T045959Z"]
    assert len(series(lines, start).between(EARLY, FAR)) == 3


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("FREQ=DAILY", "must begin with RRULE:"),
        ("DTSTART:20260302T090000Z", "no DTSTART"),
        ("RRULE:FREQ=HOURLY", "DAILY, WEEKLY, MONTHLY, YEARLY"),
        ("RRULE:FREQ=DAILY;BYHOUR=9", "BYHOUR=9"),
        ("RRULE:FREQ=DAILY;COUNT=3;UNTIL=20260401", "both COUNT and UNTIL"),
        ("RRULE:FREQ=DAILY;COUNT=0", "from 1 to 1000"),
        ("RRULE:FREQ=DAILY;UNTIL=soon", "20261231T235959Z"),
        ("RRULE:FREQ=WEEKLY;BYDAY=XX", "BYDAY"),
        ("RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "no month of BYMONTH=2"),
        ("RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "FREQ=MONTHLY"),
        ("RRULE:FREQ=DAILY;INTERVAL=7;BYDAY=TU", "FREQ=WEEKLY"),
        ("RRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6", "past the last day"),
        ("EXDATE:20260309", "20260302T080000Z"),
        ("EXDATE:20260309T090000Z", "only EXDATE"),
        ("RDATE;TZID=Mars/Olympus:20260309T090000", "Mars/Olympus"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_at_once_and_says_why(line: str, text: str) -> None:
    start = read_time("start", {"dateTime": "2026-03-02T09:00:00", "timeZone": "Europe/Berlin"}, "UTC")
    began = time.process_time()
    with pytest.raises(CalendarError, match=re.escape(text)):
        read_recurrence([line], start)
    # dateutil alone looks for some of these until the year 9999, for up to nine seconds.
    assert time.process_time() - began < 1.0
