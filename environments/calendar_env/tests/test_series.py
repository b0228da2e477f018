"""Instances of a series that differ: changed, cancelled, moved along, cut off; each in its place everywhere."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from calendar_env.server.service import CalendarService
from calendar_env.server.store import CalendarStore
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import ANN, BOB, NOW, ROOM, As, Refused, timed

MARCH = {"timeMin": "2026-03-01T00:00:00Z", "timeMax": "2026-05-01T00:00:00Z"}


@pytest.fixture
def ann(acting: As) -> CalendarService:
    return acting(ANN)


@pytest.fixture
def weekly(ann: CalendarService) -> str:
    rule = {"recurrence": ["RRULE:FREQ=WEEKLY;BYDAY=MO"], "attendees": [{"email": BOB}]}
    return ann.events_insert("primary", timed("2026-03-09", "09:00", "09:30", summary="Weekly", **rule))["id"]


def starts(service: CalendarService, calendar: str = "primary", **more: Any) -> list[str]:
    found = service.events_list(calendar, singleEvents=True, orderBy="startTime", **{**MARCH, **more})["items"]
    return [event["start"]["dateTime"][:16] for event in found]


def instance(service: CalendarService, series: str, day: str) -> str:
    found = service.events_instances("primary", series, **MARCH)["items"]
    return next(each["id"] for each in found if each["start"]["dateTime"].startswith(day))


def test_a_changed_instance_stands_in_for_the_regular_one(ann: CalendarService, weekly: str, acting: As) -> None:
    target = instance(ann, weekly, "2026-03-23")
    assert target == f"{weekly}_20260323T080000Z"
    ann.events_patch("primary", target, timed("2026-03-24", "14:00", "15:00", summary="Weekly, moved"))
    expected = ["2026-03-09T09:00", "2026-03-16T09:00", "2026-03-24T14:00", "2026-03-30T09:00"]
    assert starts(ann)[:4] == starts(acting(BOB))[:4] == expected
    shown = ann.events_get("primary", target)
    assert shown["recurringEventId"] == weekly
    assert shown["originalStartTime"] == {"dateTime": "2026-03-23T09:00:00+01:00", "timeZone": "Europe/Berlin"}
    assert "recurrence" not in shown
    found = ann.events_instances("primary", weekly, originalStart="2026-03-23T09:00:00+01:00")["items"]
    assert [each["id"] for each in found] == [target]


def test_a_cancelled_instance_is_gone_and_comes_back_by_its_status(
    ann: CalendarService, weekly: str, refused: Refused
) -> None:
    target = instance(ann, weekly, "2026-03-16")
    assert ann.events_delete("primary", target) == {}
    assert "2026-03-16T09:00" not in starts(ann)
    assert "2026-03-16T09:00" in starts(ann, showDeleted=True)
    listed = ann.events_list("primary", **MARCH)["items"]
    assert [(each["id"], each["status"]) for each in listed] == [(weekly, "confirmed"), (target, "cancelled")]
    assert (refused(ann.events_delete, "primary", target).code, ann.events_get("primary", target)["status"]) == (
        410,
        "cancelled",
    )
    assert refused(ann.events_patch, "primary", target, {"summary": "x"}).reason == "deleted"
    ann.events_patch("primary", target, {"status": "confirmed"})
    assert "2026-03-16T09:00" in starts(ann)


def test_this_and_following_is_a_series_cut_and_another_begun(
    ann: CalendarService, weekly: str, store: CalendarStore
) -> None:
    ann.events_patch("primary", instance(ann, weekly, "2026-04-13"), {"summary": "Later"})
    ann.events_patch("primary", instance(ann, weekly, "2026-03-16"), {"summary": "Sooner"})
    ann.events_patch("primary", weekly, {"recurrence": ["RRULE:FREQ=WEEKLY;BYDAY=MO;UNTIL=20260329T215959Z"]})
    new = ann.events_insert(
        "primary", timed("2026-03-30", "11:00", "11:30", recurrence=["RRULE:FREQ=WEEKLY;BYDAY=MO"])
    )["id"]
    assert starts(ann)[:5] == [
        "2026-03-09T09:00",
        "2026-03-16T09:00",
        "2026-03-23T09:00",
        "2026-03-30T11:00",
        "2026-04-06T11:00",
    ]
    # The instance changed before the cut stays, the one after it is gone.
    assert set(store.dump()["events"]) == {weekly, f"{weekly}_20260316T080000Z", new}


def test_changed_instances_follow_their_series_and_keep_what_is_theirs(
    ann: CalendarService, weekly: str, store: CalendarStore
) -> None:
    renamed, moved, gone = (instance(ann, weekly, day) for day in ("2026-03-16", "2026-03-23", "2026-03-30"))
    ann.events_patch("primary", renamed, {"summary": "Renamed"})
    ann.events_patch("primary", moved, timed("2026-03-25", "16:00", "17:00"))
    ann.events_delete("primary", gone)
    change = timed("2026-03-10", "10:00", "10:45", location="Upstairs", recurrence=["RRULE:FREQ=WEEKLY;BYDAY=TU"])
    ann.events_patch("primary", weekly, change)
    assert starts(ann)[:4] == ["2026-03-10T10:00", "2026-03-17T10:00", "2026-03-25T16:00", "2026-04-07T10:00"]
    events = store.dump()["events"]
    assert set(events) == {weekly} | {
        f"{weekly}_{s}" for s in ("20260317T090000Z", "20260324T090000Z", "20260331T080000Z")
    }
    first = events[f"{weekly}_20260317T090000Z"]
    assert (first["summary"], first["location"], first["end"]["dateTime"]) == (
        "Renamed",
        "Upstairs",
        "2026-03-17T10:45:00+01:00",
    )
    assert events[f"{weekly}_20260324T090000Z"]["location"] == "Upstairs"
    assert events[f"{weekly}_20260331T080000Z"]["status"] == "cancelled"


def test_instances_moved_by_a_whole_interval_take_one_anothers_places(ann: CalendarService, weekly: str) -> None:
    for day in ("2026-03-16", "2026-03-23", "2026-03-30"):
        ann.events_patch("primary", instance(ann, weekly, day), {"summary": f"of {day}"})
    ann.events_patch("primary", weekly, timed("2026-03-16", "09:00", "09:30"))
    found = ann.events_instances("primary", weekly, **MARCH)["items"]
    named = {each["start"]["dateTime"][:10]: each["summary"] for each in found[:5]}
    assert named == {
        "2026-03-16": "Weekly",
        "2026-03-23": "of 2026-03-16",
        "2026-03-30": "of 2026-03-23",
        "2026-04-06": "of 2026-03-30",
        "2026-04-13": "Weekly",
    }


def test_guests_added_to_a_series_are_at_its_changed_instances_too(
    ann: CalendarService, weekly: str, acting: As
) -> None:
    target = instance(ann, weekly, "2026-03-16")
    ann.events_patch("primary", target, {"attendees": []})
    assert "2026-03-16T09:00" not in starts(acting(BOB))
    ann.events_patch("primary", weekly, {"attendees": [{"email": BOB}, {"email": ROOM}]})
    assert [guest["email"] for guest in ann.events_get("primary", target)["attendees"]] == [ROOM]
    assert "2026-03-16T09:00" in starts(acting(ANN), ROOM) or "2026-03-16T09:00" in starts(ann, ROOM)


def test_a_guest_takes_one_instance_or_the_whole_series_off_the_own_calendar(
    ann: CalendarService, weekly: str, acting: As
) -> None:
    bob = acting(BOB)
    bob.events_delete("primary", instance(bob, weekly, "2026-03-16"))
    assert starts(bob)[:2] == ["2026-03-09T09:00", "2026-03-23T09:00"]
    assert starts(ann)[:2] == ["2026-03-09T09:00", "2026-03-16T09:00"]
    bob.events_delete("primary", weekly)
    assert starts(bob) == []
    assert ann.events_get("primary", weekly)["attendees"][0]["responseStatus"] == "declined"


def test_a_series_deleted_takes_all_of_it_along(ann: CalendarService, weekly: str, store: CalendarStore) -> None:
    ann.events_patch("primary", instance(ann, weekly, "2026-03-16"), {"summary": "Changed"})
    ann.events_delete("primary", weekly)
    assert starts(ann) == []
    assert {name: event["status"] for name, event in store.dump()["events"].items()} == {weekly: "cancelled"}


def test_a_moved_series_keeps_its_room_where_only_a_cancelled_instance_would_clash(
    ann: CalendarService, acting: As, weekly: str
) -> None:
    ann.events_patch("primary", weekly, {"attendees": [{"email": ROOM}]})
    ann.events_delete("primary", instance(ann, weekly, "2026-03-23"))
    acting(BOB).events_insert("primary", timed("2026-03-23", "14:00", "15:00", attendees=[{"email": ROOM}]))
    moved = ann.events_patch("primary", weekly, timed("2026-03-09", "14:00", "14:30"))
    assert moved["attendees"][0]["responseStatus"] == "accepted"
    acting(BOB).events_insert("primary", timed("2026-03-30", "16:00", "17:00", attendees=[{"email": ROOM}]))
    moved = ann.events_patch("primary", weekly, timed("2026-03-09", "16:00", "16:30"))
    assert moved["attendees"][0]["responseStatus"] == "declined"


@settings(max_examples=40, deadline=None)
@given(
    rule=st.sampled_from(["FREQ=DAILY;COUNT=20", "FREQ=WEEKLY;BYDAY=MO,TH", "FREQ=DAILY;INTERVAL=2;UNTIL=20260401"]),
    changes=st.dictionaries(st.integers(0, 9), st.sampled_from(["cancel", "move", "rename"]), max_size=5),
    cuts=st.sets(st.integers(2, 40), max_size=6),
    whole_days=st.booleans(),
)
def test_windows_side_by_side_show_what_one_large_window_shows(
    rule: str, changes: dict[int, str], cuts: set[int], whole_days: bool
) -> None:
    store = CalendarStore(id_seed="windows")
    store.add_user(ANN, "Ann")
    service = CalendarService(store, ANN, NOW)
    body = timed("2026-03-09", "09:00", "09:30")
    if whole_days:
        body = {"start": {"date": "2026-03-09"}, "end": {"date": "2026-03-10"}}
    series = service.events_insert("primary", {**body, "recurrence": [f"RRULE:{rule}"]})["id"]
    found = service.events_instances("primary", series, **MARCH)["items"]
    for number, change in changes.items():
        if number >= len(found):
            continue
        if change == "cancel":
            service.events_delete("primary", found[number]["id"])
        else:
            moved = timed("2026-03-29", "01:30", "04:30") if change == "move" else {"summary": "renamed"}
            service.events_patch("primary", found[number]["id"], moved)
    whole = service.events_list("primary", singleEvents=True, orderBy="startTime", **MARCH)["items"]
    bounds = [
        datetime(2026, 3, 1, tzinfo=timezone.utc) + timedelta(days=day, hours=8, minutes=15) for day in sorted(cuts)
    ]
    edges = [MARCH["timeMin"], *(bound.isoformat() for bound in bounds), MARCH["timeMax"]]
    seen: dict[str, Any] = {}
    for first, last in itertools.pairwise(edges):
        window = {"timeMin": first, "timeMax": last, "singleEvents": True, "orderBy": "startTime"}
        seen |= {event["id"]: event for event in service.events_list("primary", **window)["items"]}
    # What lies across a cut is in both windows, and is the same in both.
    assert [seen[event["id"]] for event in whole] == whole
    assert len(seen) == len(whole)
    for event in whole:
        alone = service.events_get("primary", event["id"])
        assert {name: alone[name] for name in event} == event
    store.close()


def test_an_instance_is_no_series_and_a_series_no_single_event(
    ann: CalendarService, weekly: str, refused: Refused
) -> None:
    target = instance(ann, weekly, "2026-03-16")
    wrong = refused(ann.events_patch, "primary", target, {"recurrence": ["RRULE:FREQ=DAILY"]})
    assert (wrong.code, f"'{weekly}'" in wrong.message) == (400, True)
    assert weekly in refused(ann.events_move, "primary", target, "team-calendar").message
    single = ann.events_insert("primary", timed("2026-03-05", "09:00", "10:00"))["id"]
    assert "no series" in refused(ann.events_instances, "primary", single).message
    assert refused(ann.events_get, "primary", f"{weekly}_20260317T080000Z").code == 404
    assert refused(ann.events_get, "primary", f"{weekly}_never").code == 404


def test_whole_days_repeat_as_days_in_every_zone(acting: As) -> None:
    ann, cara = acting(ANN), acting("cara@acme.example")
    days = {"start": {"date": "2026-03-28"}, "end": {"date": "2026-03-30"}, "recurrence": ["RRULE:FREQ=WEEKLY;COUNT=2"]}
    event = ann.events_insert("primary", {"summary": "Fair", **days})
    for zone_name in (None, "America/New_York"):
        found = cara.events_instances(ANN, event["id"], timeZone=zone_name)["items"]
        assert [(each["start"], each["end"]) for each in found] == [
            ({"date": "2026-03-28"}, {"date": "2026-03-30"}),
            ({"date": "2026-04-04"}, {"date": "2026-04-06"}),
        ]
        assert found[1]["id"] == f"{event['id']}_20260404"
