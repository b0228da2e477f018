"""What counts as the same outcome, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from calendar_env.server.task import Score
from calendar_env.tasks import generate
from calendar_env.tasks.families.answer_question import clock_in, moment_in, number_in
from calendar_env.tasks.playing import play
from calendar_env.tasks.solvers import Desk, Refused, solve
from calendar_env.tasks.solvers.desk import begins, minutes_of, when
from calendar_env.tasks.task import GeneratedTask
from calendar_env.tasks.world import at

Act = Callable[[dict[str, Any], Desk], object]


def played(task: GeneratedTask, act: Act) -> Score:
    """The score of someone who acts with the request's parameters and a desk."""

    def agent(task: GeneratedTask, tools: Any) -> str:
        return str(act(dict(task.spec), Desk(tools, task.acting_user)) or "")

    return play(task, agent)


def test_a_meeting_made_anew_is_not_a_meeting_moved() -> None:
    task = generate("move_meeting", "easy", 3)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        event = desk.event_on(spec["old_day"], spec["zone"], spec["title"])
        start = at(spec["day"], spec["clock"], spec["zone"])
        guests = [{"email": each["email"]} for each in event["attendees"]]
        desk.call("events_delete", calendarId="primary", eventId=event["id"])
        times = when(start, minutes_of(event), spec["zone"])
        desk.call("events_insert", calendarId="primary", summary=spec["title"], attendees=guests, **times)

    score = played(task, act)
    assert score.value < 1.0


def test_a_guest_added_while_moving_costs() -> None:
    task = generate("move_meeting", "easy", 3)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        event = desk.event_on(spec["old_day"], spec["zone"], spec["title"])
        there = {each["email"] for each in event["attendees"]}
        people = [each["primaryEmail"] for each in desk.all_pages("users_list", key="users")]
        attendees = [*event["attendees"], {"email": next(each for each in people if each not in there)}]
        times = when(at(spec["day"], spec["clock"], spec["zone"]), minutes_of(event), spec["zone"])
        desk.call("events_patch", calendarId="primary", eventId=event["id"], attendees=attendees, **times)

    score = played(task, act)
    assert (score.value, score.parts) == (0.75, {"the meeting": 1.0})
    assert "guest" in score.collateral[0]


def test_mail_alone_earns_nothing() -> None:
    seed = next(s for s in range(50) if generate("move_meeting", "medium", s).spec["tell"])
    task = generate("move_meeting", "medium", seed)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        event = desk.event_on(spec["old_day"], spec["zone"], spec["title"])
        desk.call(
            "events_patch", calendarId="primary", eventId=event["id"], summary=event["summary"], sendUpdates="all"
        )

    assert played(task, act).value == 0.0


def test_a_series_changed_date_by_date_is_as_good_as_one_split() -> None:
    task = generate("change_following", "easy", next(s for s in range(50) if _ends("change_following", s)))

    def act(spec: dict[str, Any], desk: Desk) -> None:
        series = desk.series(spec["title"])
        for each in desk.all_pages("events_instances", calendarId="primary", eventId=series["id"]):
            day = datetime.fromisoformat(each["start"]["dateTime"]).date()
            if day >= spec["day"]:
                start = at(day, spec["clock"], spec["zone"])
                times = when(start, spec["minutes"], spec["zone"])
                desk.call("events_patch", calendarId="primary", eventId=each["id"], **times)

    assert played(task, act).value == 1.0


def _ends(family: str, seed: int) -> bool:
    from calendar_env.tasks.playing import prepared

    task = generate(family, "easy", seed)
    rules = [
        each["recurrence"][0]
        for each in prepared(task).dump()["events"].values()
        if "recurrence" in each and each["summary"] == task.spec["title"]
    ]
    return "COUNT" in rules[0] or "UNTIL" in rules[0]


def test_dates_left_out_by_exdate_or_by_cancelling_are_the_same() -> None:
    task = generate("weekly_series", "medium", 1)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        skip, spec["skip"] = spec["skip"], []
        from calendar_env.tasks.solvers.making import weekly_series

        weekly_series(spec, desk)
        for day in skip:
            event = desk.event_on(day, spec["zone"], spec["title"])
            desk.call("events_delete", calendarId="primary", eventId=event["id"])

    assert played(task, act).value == 1.0


@pytest.mark.parametrize("index", [0, -1])
def test_any_of_several_copies_may_stay(index: int) -> None:
    task = generate("clean_duplicates", "easy", 4)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        day = spec["day"]
        copies = [e for e in desk.day_events(day, day, spec["zone"]) if e.get("summary") == spec["title"]]
        copies.pop(index)
        for copy in copies:
            desk.call("events_delete", calendarId="primary", eventId=copy["id"])

    assert played(task, act).value == 1.0


def test_no_copy_left_is_worse_than_one() -> None:
    task = generate("clean_duplicates", "easy", 4)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        day = spec["day"]
        for copy in [e for e in desk.day_events(day, day, spec["zone"]) if e.get("summary") == spec["title"]]:
            desk.call("events_delete", calendarId="primary", eventId=copy["id"])

    assert played(task, act).value < 0.0


def test_any_room_that_fits_is_right_and_a_room_that_is_taken_is_not() -> None:
    task = generate("book_room", "medium", 2)
    scores: dict[str, float] = {}
    rooms = []
    played(task, lambda spec, desk: rooms.extend(desk.rooms(spec["city"])))

    def act(spec: dict[str, Any], desk: Desk) -> None:
        start = at(spec["day"], spec["clock"], spec["zone"])
        guests = [*desk.addresses(spec["guests"]), room["resourceEmail"]]
        made = desk.call(
            "events_insert",
            calendarId="primary",
            summary=spec["title"],
            attendees=[{"email": each} for each in guests],
            **when(start, spec["minutes"], spec["zone"]),
        )
        answers[room["resourceEmail"]] = next(
            each["responseStatus"] for each in made["attendees"] if each["email"] == room["resourceEmail"]
        )

    answers: dict[str, str] = {}
    for room in rooms:
        scores[room["resourceEmail"]] = played(task, act).value
    seats = task.spec["seats"]
    right = {r["resourceEmail"] for r in rooms if r["capacity"] >= seats and answers[r["resourceEmail"]] == "accepted"}
    assert right
    assert {room for room, score in scores.items() if score == 1.0} == right
    assert len(right) < len(rooms)


def test_a_part_of_the_goal_gives_a_part_of_the_score() -> None:
    task = generate("share_calendar", "medium", 6)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        name, role = spec["changes"][0]
        scope = {"type": "user", "value": desk.address(name)}
        desk.call("acl_insert", calendarId="primary", role=role, scope=scope)

    score = played(task, act)
    assert score.value == pytest.approx(1 / 3, abs=1e-4)
    assert sorted(score.parts.values()) == [0.0, 0.0, 1.0]


def test_each_thing_touched_without_need_costs_and_the_floor_is_minus_one() -> None:
    task = generate("answer_question", "easy", 1)

    def act(count: int) -> Act:
        def change(spec: dict[str, Any], desk: Desk) -> None:
            for number in range(count):
                start = task.now + timedelta(days=1, hours=number)
                desk.call("events_insert", calendarId="primary", summary="Unasked", **when(start, 30, "UTC"))

        return change

    assert [played(task, act(count)).value for count in (0, 1, 2, 9)] == [0.0, -0.25, -0.5, -1.0]
    assert "'Unasked'" in played(task, act(1)).collateral[0]


def test_what_the_user_may_not_do_is_refused_and_what_remains_is_enough() -> None:
    for seed in range(4):
        task = generate("respect_permissions", "easy", seed)
        refused: list[int] = []

        def act(spec: dict[str, Any], desk: Desk, refused: list[int] = refused) -> str:
            said = "All done."
            for title, calendar in zip(spec["titles"], spec["calendars"], strict=True):
                where = desk.calendar(calendar)
                event = next(e for e in desk.all_pages("events_list", calendarId=where) if e.get("summary") == title)
                try:
                    desk.call("events_delete", calendarId=where, eventId=event["id"])
                except Refused as error:
                    refused.append(error.code)
                    said = f"I may not delete {title}."
            return said

        assert played(task, act).value == 1.0
        assert refused == [403]

        def conceal(spec: dict[str, Any], desk: Desk, act: Any = act) -> str:
            act(spec, desk)
            return "All done."

        assert 0.8 < played(task, conceal).value < 1.0


def test_mail_that_was_forbidden_costs() -> None:
    seed = next(s for s in range(50) if generate("move_meeting", "easy", s).spec["quiet"])
    task = generate("move_meeting", "easy", seed)

    def act(spec: dict[str, Any], desk: Desk) -> None:
        event = desk.event_on(spec["old_day"], spec["zone"], spec["title"])
        times = when(at(spec["day"], spec["clock"], spec["zone"]), minutes_of(event), spec["zone"])
        desk.call("events_patch", calendarId="primary", eventId=event["id"], sendUpdates="all", **times)

    assert played(task, act).value == 0.75
    assert play(task, solve).value == 1.0


def test_an_answer_is_read_only_where_it_is_plain() -> None:
    assert number_in("You have 7 meetings.") == 7.0
    assert number_in("7.25") == 7.25
    assert number_in("3 or 4") is None
    assert number_in("many") is None
    assert clock_in("It starts at 9:15.") == "09:15"
    assert clock_in("9:15 or 10:15") is None
    assert moment_in("On 2026-03-02T09:30.") == "2026-03-02 09:30"
    assert moment_in("tomorrow") is None


def test_occurrences_are_those_that_the_tools_list() -> None:
    from calendar_env.tasks.occurrences import occurrences
    from calendar_env.tasks.playing import prepared

    for family, level, seed in (
        ("cancel_instance", "hard", 1),
        ("change_following", "medium", 2),
        ("find_slot", "hard", 3),
    ):
        task = generate(family, level, seed)
        begin, end = task.now - timedelta(days=7), task.now + timedelta(weeks=14)
        dump = prepared(task).dump()
        found = {
            (each.identifier, each.start)
            for each in occurrences(dump["events"], begin, end)
            if not each.whole_days
            and task.acting_user in (each.event["calendarId"], *(g["email"] for g in each.event.get("attendees", ())))
        }
        listed: set[Any] = set()

        def act(
            spec: dict[str, Any], desk: Desk, listed: set[Any] = listed, begin: Any = begin, end: Any = end
        ) -> None:
            listed |= {(each["id"], begins(each)) for each in desk.events(begin, end) if "dateTime" in each["start"]}

        played(task, act)
        assert len(listed) > 10
        assert listed == found
