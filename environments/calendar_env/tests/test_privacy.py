"""What someone may not see shows nowhere: not in lists, alone, in searches, as instances, when busy, or in errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from calendar_env.server.service import CalendarService
from calendar_env.server.store import CalendarStore

from .conftest import ANN, BOB, NOW, TEAM, Refused, timed

MARCH = {"timeMin": "2026-03-01T00:00:00Z", "timeMax": "2026-04-01T00:00:00Z"}
SECRET = {
    "summary": "Salary talk",
    "description": "With the lawyer",
    "location": "Room of the board",
    "attendees": [{"email": "lawyer@firm.example"}],
    "extendedProperties": {"private": {"case": "4711"}},
    "colorId": "11",
}
WORDS = ("Salary", "lawyer", "board", "4711", "firm.example")
RULE = ["RRULE:FREQ=WEEKLY;COUNT=3"]


def seen(service: CalendarService, calendar: str, event_id: str) -> list[Any]:
    """Everything that reading tools tell of a calendar."""
    return [
        service.events_list(calendar, **MARCH),
        service.events_list(calendar, singleEvents=True, orderBy="startTime", showDeleted=True, **MARCH),
        service.events_list(calendar),
        service.events_get(calendar, event_id),
        service.events_instances(calendar, event_id, **MARCH),
        service.freebusy_query(items=[{"id": calendar}], **MARCH),
        [service.events_list(calendar, q=word)["items"] for word in ("salary", "lawyer", "board", "firm.example")],
    ]


@pytest.mark.parametrize(
    ("role", "visibility", "is_hidden"),
    [
        ("freeBusyReader", "default", True),
        ("freeBusyReader", "public", True),
        ("freeBusyReader", "private", True),
        ("reader", "default", False),
        ("reader", "public", False),
        ("reader", "private", True),
        ("reader", "confidential", True),
        ("writer", "private", False),
        ("owner", "private", False),
    ],
)
def test_details_show_to_whom_they_may_and_in_no_way_to_others(
    store: CalendarStore, role: str, visibility: str, is_hidden: bool
) -> None:
    store.add_acl(TEAM, "user", BOB, role)
    body = timed("2026-03-03", "09:00", "10:00", id="secret000001", visibility=visibility, recurrence=RULE, **SECRET)
    store.add_event(TEAM, body)
    bob = CalendarService(store, BOB, NOW)
    told = seen(bob, TEAM, "secret000001")
    text = json.dumps(told)
    for word in WORDS:
        assert (word in text) is not is_hidden
    assert all(bool(found) is not is_hidden for found in told[-1])
    # That time is taken is told to everyone who sees the calendar.
    assert len(told[1]["items"]) == len(told[4]["items"]) == len(told[5]["calendars"][TEAM]["busy"]) == 3
    if is_hidden:
        assert set(told[1]["items"][0]) == {
            *("id", "status", "start", "end", "recurringEventId", "originalStartTime", "visibility")
        }


def test_a_guest_and_the_organizer_see_their_own_private_event_wherever_they_look(store: CalendarStore) -> None:
    store.add_acl(TEAM, "user", BOB, "freeBusyReader")
    body = timed("2026-03-03", "09:00", "10:00", visibility="private", **{**SECRET, "attendees": [{"email": BOB}]})
    event = store.add_event(TEAM, body)
    assert CalendarService(store, BOB, NOW).events_get(TEAM, event)["summary"] == "Salary talk"
    assert CalendarService(store, ANN, NOW).events_get(TEAM, event)["summary"] == "Salary talk"


def test_a_guests_own_privacy_hides_the_event_on_the_guests_calendar_alone(store: CalendarStore) -> None:
    for calendar in (ANN, BOB):
        store.add_acl(calendar, "user", "cara@acme.example", "reader")
    bob, cara = CalendarService(store, BOB, NOW), CalendarService(store, "cara@acme.example", NOW)
    event = store.add_event(ANN, timed("2026-03-03", "09:00", "10:00", summary="Doctor", attendees=[{"email": BOB}]))
    bob.events_patch("primary", event, {"visibility": "private"})
    assert "summary" not in cara.events_get(BOB, event)
    assert cara.events_get(ANN, event)["summary"] == "Doctor"
    assert "visibility" not in CalendarService(store, ANN, NOW).events_get(ANN, event)


def test_free_and_cancelled_time_is_not_there_for_those_who_see_only_busy_times(
    store: CalendarStore, refused: Refused
) -> None:
    free = store.add_event(ANN, timed("2026-03-03", "09:00", "10:00", summary="Reading", transparency="transparent"))
    gone = store.add_event(ANN, timed("2026-03-04", "09:00", "10:00", summary="Talk", status="cancelled"))
    bob = CalendarService(store, BOB, NOW)
    assert bob.events_list(ANN, showDeleted=True)["items"] == []
    for event in (free, gone):
        assert refused(bob.events_get, ANN, event).code == 404


def test_other_guests_are_hidden_where_the_organizer_says_so(store: CalendarStore) -> None:
    guests = [{"email": BOB}, {"email": "cara@acme.example"}]
    body = timed("2026-03-03", "09:00", "10:00", summary="Survey", attendees=guests, guestsCanSeeOtherGuests=False)
    event = store.add_event(ANN, body)
    bob, ann = CalendarService(store, BOB, NOW), CalendarService(store, ANN, NOW)
    assert "cara" not in json.dumps([bob.events_get("primary", event), bob.events_list("primary", q="cara")["items"]])
    answer = [{"email": BOB, "responseStatus": "accepted"}]
    bob.events_patch("primary", event, {"attendees": answer})
    answers = {guest["email"]: guest["responseStatus"] for guest in ann.events_get("primary", event)["attendees"]}
    assert answers == {BOB: "accepted", "cara@acme.example": "needsAction"}


def test_a_calendar_without_access_is_as_though_it_were_not_there(store: CalendarStore, refused: Refused) -> None:
    body = timed("2026-03-03", "09:00", "10:00", id="secret000001", **SECRET)
    store.add_event(TEAM, body)
    bob = CalendarService(store, BOB, NOW)
    unknown = refused(bob.events_list, "no-such-calendar")
    hidden = refused(bob.events_list, TEAM)
    assert hidden.message.replace(TEAM, "no-such-calendar") == unknown.message
    assert refused(bob.events_get, "primary", "secret000001").code == 404
    # An id that is taken is taken, and nothing else is told of it.
    taken = refused(bob.events_insert, "primary", timed("2026-03-03", "09:00", "10:00", id="secret000001"))
    assert (taken.code, "Salary" in taken.message) == (409, False)
