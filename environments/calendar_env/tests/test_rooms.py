"""When calendars are busy, and how rooms answer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from calendar_env.server.service import CalendarService
from calendar_env.server.store import CalendarStore
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import ANN, BOB, CARA, HALL, NOW, ROOM, STAFF, TEAM, As, Refused, timed

WEEK = {"timeMin": "2026-03-02T00:00:00+01:00", "timeMax": "2026-03-09T00:00:00+01:00", "timeZone": "Europe/Berlin"}


@pytest.fixture
def ann(acting: As) -> CalendarService:
    return acting(ANN)


def busy(service: CalendarService, calendar: str, **more: Any) -> list[tuple[str, str]]:
    answer = service.freebusy_query(items=[{"id": calendar}], **{**WEEK, **more})["calendars"][calendar]
    return [(span["start"][:16], span["end"][:16]) for span in answer["busy"]]


def room_answer(event: dict[str, Any], room: str = ROOM) -> tuple[str, str]:
    guest = next(guest for guest in event["attendees"] if guest["email"] == room)
    return guest["responseStatus"], guest.get("comment", "")


def test_busy_is_what_takes_place_and_takes_time_in_one_piece(ann: CalendarService, acting: As) -> None:
    insert = ann.events_insert
    insert("primary", timed("2026-03-03", "09:00", "10:00"))
    insert("primary", timed("2026-03-03", "09:30", "11:00"))
    insert("primary", timed("2026-03-03", "11:00", "11:30", status="tentative"))
    insert("primary", timed("2026-03-03", "15:00", "16:00", transparency="transparent"))
    cancelled = insert("primary", timed("2026-03-03", "17:00", "18:00"))["id"]
    ann.events_delete("primary", cancelled)
    insert("primary", {"start": {"date": "2026-03-05"}, "end": {"date": "2026-03-06"}, "eventType": "outOfOffice"})
    invited = acting(BOB).events_insert("primary", timed("2026-03-04", "09:00", "10:00", attendees=[{"email": ANN}]))
    expected = [("2026-03-03T09:00", "2026-03-03T11:30"), ("2026-03-05T00:00", "2026-03-06T00:00")]
    assert busy(ann, ANN) == [expected[0], ("2026-03-04T09:00", "2026-03-04T10:00"), expected[1]]
    ann.events_patch("primary", invited["id"], {"attendees": [{"email": ANN, "responseStatus": "declined"}]})
    assert busy(ann, ANN) == expected
    assert busy(ann, ANN, timeMin="2026-03-03T10:00:00+01:00", timeMax="2026-03-03T11:00:00+01:00") == [
        ("2026-03-03T10:00", "2026-03-03T11:00")
    ]


@settings(max_examples=60, deadline=None)
@given(spans=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 20)), max_size=8))
def test_a_minute_is_busy_if_an_event_covers_it(spans: list[tuple[int, int]]) -> None:
    store = CalendarStore(id_seed="spans")
    store.add_user(ANN, "Ann", time_zone="UTC")
    for first, length in spans:
        start, end = (f"2026-03-03T{each // 60:02}:{each % 60:02}:00Z" for each in (first, first + length))
        store.add_event(ANN, {"start": {"dateTime": start}, "end": {"dateTime": end}})
    found = busy(CalendarService(store, ANN, NOW), ANN, timeZone="UTC")
    store.close()
    minutes = [(int(s[11:13]) * 60 + int(s[14:16]), int(e[11:13]) * 60 + int(e[14:16])) for s, e in found]
    covered = {minute for first, last in minutes for minute in range(first, last)}
    assert covered == {minute for first, length in spans for minute in range(first, first + length)}
    assert all(one[1] < other[0] for one, other in itertools.pairwise(minutes))


def test_a_mailing_list_is_asked_for_all_its_people_and_unknown_calendars_are_said_to_be(
    ann: CalendarService, refused: Refused
) -> None:
    answer = ann.freebusy_query(items=[{"id": STAFF}, {"id": "nobody@acme.example"}], **WEEK)
    assert answer["groups"] == {STAFF: {"calendars": [ANN, BOB, CARA]}}
    assert set(answer["calendars"]) == {ANN, BOB, CARA, "nobody@acme.example"}
    assert answer["calendars"]["nobody@acme.example"]["errors"][0]["reason"] == "notFound"
    small = ann.freebusy_query(items=[{"id": STAFF}], groupExpansionMax=2, **WEEK)
    assert small["groups"][STAFF]["errors"][0]["reason"] == "groupTooBig"
    many = [{"id": f"user{number}@acme.example"} for number in range(51)]
    assert refused(ann.freebusy_query, items=many, **WEEK).reason == "tooManyCalendarsRequested"
    assert refused(ann.freebusy_query, items=[], timeMin=WEEK["timeMax"], timeMax=WEEK["timeMin"]).code == 400
    wrong = refused(ann.freebusy_query, items=[], timeMin="2026-03-02T00:00:00", timeMax=WEEK["timeMax"])
    assert "offset" in wrong.message


def test_a_room_takes_one_meeting_at_a_time_and_says_when_it_is_taken(ann: CalendarService, acting: As) -> None:
    room = {"attendees": [{"email": ROOM}]}
    first = ann.events_insert("primary", timed("2026-03-03", "09:00", "10:00", **room))
    assert room_answer(first) == ("accepted", "")
    bob = acting(BOB)
    second = bob.events_insert("primary", timed("2026-03-03", "09:59", "11:00", **room))
    assert room_answer(second) == ("declined", "Declined: busy from 2026-03-03T09:00+01:00 to 2026-03-03T10:00+01:00.")
    assert room_answer(bob.events_insert("primary", timed("2026-03-03", "10:00", "11:00", **room))) == ("accepted", "")
    assert busy(bob, ROOM) == [("2026-03-03T09:00", "2026-03-03T11:00")]
    # Moved away, and back: the room answers anew each time, and is never in its own way.
    assert (
        room_answer(bob.events_patch("primary", second["id"], timed("2026-03-03", "14:00", "15:00")))[0] == "accepted"
    )
    assert room_answer(ann.events_patch("primary", first["id"], timed("2026-03-03", "09:00", "09:45")))[0] == "accepted"
    assert room_answer(ann.events_patch("primary", first["id"], timed("2026-03-03", "14:30", "15:30")))[0] == "declined"
    ann.events_delete("primary", first["id"])
    assert room_answer(ann.events_insert("primary", timed("2026-03-03", "09:00", "10:00", **room)))[0] == "accepted"


def test_a_series_gets_a_room_that_is_free_for_all_its_instances(ann: CalendarService, acting: As) -> None:
    bob = acting(BOB)
    single = bob.events_insert("primary", timed("2026-04-20", "09:30", "10:30", attendees=[{"email": ROOM}]))
    rule = {"recurrence": ["RRULE:FREQ=WEEKLY;BYDAY=MO"], "attendees": [{"email": ROOM}]}
    series = ann.events_insert("primary", timed("2026-03-09", "09:00", "10:00", **rule))
    assert room_answer(series) == ("declined", "Declined: busy from 2026-04-20T09:30+02:00 to 2026-04-20T10:30+02:00.")
    bob.events_delete("primary", single["id"])
    other = ann.events_insert("primary", timed("2026-03-09", "09:00", "10:00", **rule))
    assert room_answer(other)[0] == "accepted"
    moved = f"{other['id']}_20260316T080000Z"
    assert room_answer(ann.events_patch("primary", moved, timed("2026-03-17", "09:00", "10:00")))[0] == "accepted"
    # The instance that moved away has left its place to others.
    assert (
        room_answer(bob.events_insert("primary", timed("2026-03-16", "09:00", "10:00", attendees=[{"email": ROOM}])))[0]
        == "accepted"
    )
    assert (
        room_answer(bob.events_insert("primary", timed("2026-03-17", "09:00", "10:00", attendees=[{"email": ROOM}])))[0]
        == "declined"
    )


def test_a_room_is_not_for_everyone_and_its_admin_may_answer_otherwise(
    store: CalendarStore, acting: As, refused: Refused
) -> None:
    zoe, cara = acting("zoe@other.example"), acting(CARA)
    event = zoe.events_insert("primary", timed("2026-03-03", "09:00", "10:00", attendees=[{"email": HALL}]))
    assert room_answer(event, HALL) == ("declined", "Declined: you may not book this room.")
    cara.events_patch(HALL, event["id"], {"attendees": [{"email": HALL, "responseStatus": "accepted"}]})
    assert room_answer(zoe.events_get("primary", event["id"]), HALL)[0] == "accepted"
    assert refused(acting(BOB).events_patch, HALL, event["id"], {"colorId": "1"}).reason == "requiredAccessLevel"
    assert refused(cara.calendars_delete, HALL).code == 403


def test_rooms_are_found_by_size_and_by_what_is_in_them(ann: CalendarService) -> None:
    assert [room["resourceEmail"] for room in ann.rooms_list()["rooms"]] == [ROOM, HALL]
    assert [room["resourceEmail"] for room in ann.rooms_list(minCapacity=5)["rooms"]] == [HALL]
    assert ann.rooms_list(query="screen")["rooms"] == [
        {
            "resourceEmail": ROOM,
            "resourceName": "Elbe",
            "capacity": 4,
            "location": "2nd floor",
            "features": ["screen"],
            "timeZone": "Europe/Berlin",
        }
    ]
    assert [room["resourceName"] for room in ann.rooms_list(query="RHINE")["rooms"]] == ["Rhine"]
    assert ann.events_list(TEAM)["items"] == []
