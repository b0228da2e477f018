"""No call makes a session work for long: series, lists and texts have bounds, and errors that tell them."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import pytest
from calendar_env.server.calendar_environment import CalendarEnvironment
from calendar_env.server.event_changes import MOST_SERIES
from calendar_env.server.service import CalendarService
from calendar_env.server.times import MOST_INSTANCES
from calendar_env.tasks.occurrences import occurrences

from .conftest import ANN, TEAM, As, Refused, timed

EVER = {"timeMin": "1970-01-01T00:00:00Z", "timeMax": "2100-01-01T00:00:00Z"}
DAILY = ["RRULE:FREQ=DAILY"]


@pytest.fixture
def ann(acting: As) -> CalendarService:
    return acting(ANN)


def days_until(until: str) -> dict[str, Any]:
    return timed("2026-03-02", "09:00", "09:30", recurrence=[f"RRULE:FREQ=DAILY;UNTIL={until}"])


@pytest.mark.parametrize(
    ("recurrence", "words"),
    [
        (DAILY * 2, "one RRULE"),
        (["RRULE:FREQ=DAILY", "RRULE:FREQ=WEEKLY"], "one RRULE"),
        ([*DAILY, "EXDATE:20260303T080000Z", "EXDATE:20260303T080000Z"], "each line once"),
        ([*DAILY, *(f"EXDATE:{','.join([f'2026030{n}T080000Z'] * 400)}" for n in (3, 4))], "more than 500 dates"),
        ([f"RRULE:FREQ=DAILY;COUNT={MOST_INSTANCES + 1}"], f"from 1 to {MOST_INSTANCES}"),
        ([f"RRULE:FREQ=DAILY;COUNT={'9' * 200}"], "from 1 to"),
        (["RRULE:FREQ=WEEKLY;BYDAY=" + ",".join(["MO"] * 200)], "longer than 300"),
    ],
)
def test_a_series_has_one_rule_and_each_line_once(
    ann: CalendarService, refused: Refused, recurrence: list[str], words: str
) -> None:
    body = timed("2026-03-02", "09:00", "09:30", recurrence=recurrence)
    assert words in refused(ann.events_insert, "primary", body).message


def test_a_series_that_ends_too_late_is_refused_and_one_without_an_end_has_its_first_instances(
    ann: CalendarService, refused: Refused
) -> None:
    assert f"more than {MOST_INSTANCES}" in refused(ann.events_insert, "primary", days_until("20300101")).message
    ann.events_insert("primary", days_until("20281125"))
    made = ann.events_insert("primary", timed("2026-03-02", "09:00", "09:30", recurrence=DAILY))
    shown: list[Any] = []
    page: dict[str, Any] = {"nextPageToken": None}
    while "nextPageToken" in page:
        page = ann.events_instances("primary", made["id"], **EVER, pageToken=page["nextPageToken"])
        shown += page["items"]
    assert len(shown) == MOST_INSTANCES
    # The tasks count as far as the tools show.
    events = {made["id"]: ann.store.dump()["events"][made["id"]]}
    now = datetime(2026, 3, 2, tzinfo=timezone.utc)
    assert [each.identifier for each in occurrences(events, now, now, {made["id"]})] == [each["id"] for each in shown]


def test_a_calendar_holds_so_many_series_and_more_where_one_is_deleted(ann: CalendarService, refused: Refused) -> None:
    body = timed("2026-03-02", "09:00", "09:30", recurrence=DAILY)
    made = [ann.events_insert("primary", body) for _ in range(MOST_SERIES)]
    single = ann.events_insert("primary", timed("2026-03-02", "09:00", "09:30"))
    elsewhere = ann.events_insert(TEAM, body)
    for call, arguments in (
        (ann.events_insert, ("primary", body)),
        (ann.events_patch, ("primary", single["id"], {"recurrence": DAILY})),
        (ann.events_move, (TEAM, elsewhere["id"], ANN)),
    ):
        error = refused(call, *arguments)
        assert (error.code, error.reason) == (403, "quotaExceeded")
    ann.events_patch("primary", made[1]["id"], {"recurrence": ["RRULE:FREQ=WEEKLY"]})
    ann.events_delete("primary", made[0]["id"])
    ann.events_insert("primary", body)


def test_what_would_look_at_too_many_instances_is_refused_and_a_narrower_question_answered(
    ann: CalendarService, refused: Refused
) -> None:
    for hour in range(10, 20):
        ann.events_insert("primary", timed("2026-03-02", f"{hour}:00", f"{hour}:30", recurrence=DAILY))
    error = refused(ann.events_list, "primary", **EVER, singleEvents=True)
    assert (error.code, "Narrow timeMin and timeMax" in error.message) == (400, True)
    assert "Narrow" in refused(ann.freebusy_query, **EVER, items=[{"id": "primary"}]).message
    week = {"timeMin": "2028-03-06T00:00:00Z", "timeMax": "2028-03-13T00:00:00Z"}
    assert len(ann.events_list("primary", **week, singleEvents=True)["items"]) == 70
    assert len(ann.freebusy_query(**week, items=[{"id": "primary"}])["calendars"][ANN]["busy"]) == 70


def test_long_texts_are_refused_and_not_sent_back(ann: CalendarService, refused: Refused) -> None:
    long = "x" * 10_000_000
    for call, arguments in (
        (ann.events_quickAdd, {"calendarId": "primary", "text": long}),
        (ann.freebusy_query, {**EVER, "items": [{"id": long}]}),
        (ann.freebusy_query, {**EVER, "items": [{"id": "x"}] * 100_000}),
        (ann.events_list, {"calendarId": "primary", "q": long}),
        (ann.events_list, {"calendarId": long}),
    ):
        assert len(refused(call, **arguments).message) < 500


def slowest_of_a_full_session() -> dict[str, float]:
    """Seconds of processor time that the slowest call of each tool takes where all series are daily ones."""
    environment = CalendarEnvironment()
    environment.reset(task="create_event", level="easy", task_seed=1, max_steps=1000)
    took: dict[str, float] = {}

    def call(tool: str, **arguments: Any) -> Any:
        begin = time.thread_time()
        observation = environment.call_tool(tool, arguments)
        took[tool] = max(took.get(tool, 0.0), time.thread_time() - begin)
        return observation

    for number in range(MOST_SERIES):
        day, hour = f"{1970 + number}-01-01", f"{number % 23:02d}"
        body = timed(day, f"{hour}:00", f"{hour}:30", recurrence=DAILY)
        call("events_insert", calendarId="primary", summary=str(number), **body)
    call("events_list", calendarId="primary", **EVER, singleEvents=True)
    call("events_list", calendarId="primary", **{**EVER, "timeMin": "2060-01-01T00:00:00Z"}, singleEvents=True)
    call("freebusy_query", **EVER, items=[{"id": "primary"}])
    assert call("finish", message="").reward == -1.0
    return took


def test_a_session_full_of_daily_series_answers_each_call_within_a_second() -> None:
    rounds: list[dict[str, float]] = []
    while not rounds or max(rounds[-1].values()) >= 1.0:
        assert len(rounds) < 3, rounds  # one slow round may be the machine's, which has other things to do
        rounds.append(slowest_of_a_full_session())
