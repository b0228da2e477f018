"""Events are written as the API writes them: by organizers, by guests, whole or not at all."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from calendar_env.server.errors import CalendarError
from calendar_env.server.event_body import DEFAULTS
from calendar_env.server.service import CalendarService
from calendar_env.server.store import CalendarStore
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import ANN, BOB, CARA, NOW, STAFF, TEAM, ZOE, As, Refused, timed

GUESTS = [{"email": BOB}, {"email": ZOE}]


@pytest.fixture
def ann(acting: As) -> CalendarService:
    return acting(ANN)


@pytest.fixture
def meeting(ann: CalendarService) -> str:
    body = timed("2026-03-04", "09:00", "10:00", summary="Review", location="Upstairs", attendees=GUESTS)
    return ann.events_insert("primary", body)["id"]


def answers(service: CalendarService, event: str) -> dict[str, str]:
    return {guest["email"]: guest["responseStatus"] for guest in service.events_get("primary", event)["attendees"]}


def test_times_are_kept_in_the_zone_they_are_given_in_or_the_calendars(ann: CalendarService) -> None:
    given_ = {
        "2026-07-01T09:00:00": ("2026-07-01T09:00:00+02:00", "Europe/Berlin"),
        "2026-07-01T09:00:00Z": ("2026-07-01T11:00:00+02:00", "Europe/Berlin"),
        "2026-07-01T09:00:00-04:00": ("2026-07-01T15:00:00+02:00", "Europe/Berlin"),
        "2026-07-01 09:00": ("2026-07-01T09:00:00+02:00", "Europe/Berlin"),
    }
    for text, (clock, zone_name) in given_.items():
        event = ann.events_insert("primary", {"start": {"dateTime": text}, "end": {"dateTime": "2026-07-02T09:00:00Z"}})
        assert event["start"] == {"dateTime": clock, "timeZone": zone_name}
    start = {"dateTime": "2026-07-01T09:00:00", "timeZone": "America/New_York"}
    event = ann.events_insert("primary", {"start": start, "end": {**start, "dateTime": "2026-07-01T10:00:00"}})
    # It is shown on the clocks of the calendar, or of a zone that is asked for.
    assert event["start"] == {"dateTime": "2026-07-01T15:00:00+02:00", "timeZone": "America/New_York"}
    shown = ann.events_get("primary", event["id"], timeZone="America/New_York")["start"]
    assert shown == {"dateTime": "2026-07-01T09:00:00-04:00", "timeZone": "America/New_York"}


def test_patch_changes_what_is_given_and_update_replaces_the_whole(ann: CalendarService, meeting: str) -> None:
    patched = ann.events_patch("primary", meeting, {"summary": "Talk"})
    assert (patched["summary"], patched["location"], len(patched["attendees"])) == ("Talk", "Upstairs", 2)
    updated = ann.events_update("primary", meeting, timed("2026-03-05", "09:00", "10:00", summary="Other"))
    assert updated["summary"] == "Other"
    assert "location" not in updated
    assert "attendees" not in updated
    assert ann.events_patch("primary", meeting, {"summary": ""}).get("summary") is None


def test_an_event_that_was_read_can_be_sent_back_whole(
    ann: CalendarService, meeting: str, store: CalendarStore
) -> None:
    before = store.dump()
    ann.events_update("primary", meeting, ann.events_get("primary", meeting))
    ann.events_patch("primary", meeting, ann.events_get("primary", meeting))
    assert store.dump() == before


def test_nobody_answers_for_others(ann: CalendarService, acting: As, meeting: str) -> None:
    forged = [{"email": BOB, "responseStatus": "accepted"}, {"email": ZOE}]
    ann.events_patch("primary", meeting, {"attendees": forged})
    assert answers(ann, meeting) == {BOB: "needsAction", ZOE: "needsAction"}
    mine = [
        {"email": BOB, "responseStatus": "tentative", "comment": "Late"},
        {"email": ZOE, "responseStatus": "accepted"},
    ]
    acting(BOB).events_patch("primary", meeting, {"attendees": mine})
    assert answers(ann, meeting) == {BOB: "tentative", ZOE: "needsAction"}
    ann.events_patch("primary", meeting, {"attendees": [{"email": BOB}, {"email": ZOE}, {"email": CARA}]})
    assert answers(ann, meeting) == {BOB: "tentative", ZOE: "needsAction", CARA: "needsAction"}


def test_an_assistant_with_write_access_acts_for_the_calendars_owner(acting: As, store: CalendarStore) -> None:
    cara, bob = acting(CARA), acting(BOB)
    event = cara.events_insert(ANN, timed("2026-03-04", "09:00", "10:00", attendees=[{"email": BOB}]))
    assert event["organizer"] == {"email": ANN, "displayName": "Ann Weber", "self": True}
    assert event["creator"]["email"] == CARA
    invitation = bob.events_insert("primary", timed("2026-03-05", "09:00", "10:00", attendees=[{"email": ANN}]))["id"]
    cara.events_patch(ANN, invitation, {"attendees": [{"email": ANN, "responseStatus": "declined"}]})
    assert answers(bob, invitation) == {ANN: "declined"}


def test_a_new_time_asks_the_guests_again(ann: CalendarService, acting: As, meeting: str) -> None:
    yes = [{"email": BOB, "responseStatus": "accepted"}, {"email": ZOE}]
    acting(BOB).events_patch("primary", meeting, {"attendees": yes})
    ann.events_patch("primary", meeting, {"summary": "New name"})
    assert answers(ann, meeting)[BOB] == "accepted"
    ann.events_patch("primary", meeting, timed("2026-03-04", "10:00", "11:00"))
    assert answers(ann, meeting)[BOB] == "needsAction"


@pytest.mark.parametrize(
    "change",
    [
        {"summary": "Mine"},
        timed("2026-03-05", "09:00", "10:00"),
        {"guestsCanModify": True},
        {"attendees": [{"email": BOB}]},
        {"attendees": [{"email": ZOE}]},
    ],
    ids=["title", "time", "rights", "others out", "itself out"],
)
def test_a_guest_does_not_change_what_is_the_organizers(
    acting: As, refused: Refused, meeting: str, change: dict[str, Any]
) -> None:
    error = refused(acting(BOB).events_patch, "primary", meeting, change)
    assert (error.code, error.reason) == (403, "forbiddenForNonOrganizer")


def test_a_guest_has_reminders_colour_and_free_time_of_its_own(ann: CalendarService, acting: As, meeting: str) -> None:
    bob = acting(BOB)
    own = {"reminders": {"useDefault": False, "overrides": [{"method": "popup", "minutes": 5}]}, "colorId": "11"}
    bob.events_patch("primary", meeting, {**own, "transparency": "transparent"})
    mine, hers = bob.events_get("primary", meeting), ann.events_get("primary", meeting)
    assert {name: mine[name] for name in own} == own
    assert (mine["transparency"], hers.get("transparency"), hers.get("colorId")) == ("transparent", None, None)
    assert hers["reminders"] == DEFAULTS["reminders"]


def test_guests_invite_others_unless_they_may_not_and_modify_where_they_may(
    ann: CalendarService, acting: As, refused: Refused, meeting: str
) -> None:
    bob, more = acting(BOB), {"attendees": [*GUESTS, {"email": CARA}]}
    bob.events_patch("primary", meeting, more)
    assert CARA in answers(ann, meeting)
    ann.events_patch("primary", meeting, {"attendees": GUESTS, "guestsCanInviteOthers": False})
    assert refused(bob.events_patch, "primary", meeting, more).reason == "forbiddenForNonOrganizer"
    ann.events_patch("primary", meeting, {"guestsCanModify": True})
    whole = {"summary": "Bob's", **timed("2026-03-06", "09:00", "10:00"), **more}
    assert bob.events_patch("primary", meeting, whole)["summary"] == "Bob's"
    seen_by_ann = ann.events_get("primary", meeting)
    assert (seen_by_ann["summary"], seen_by_ann["start"]["dateTime"]) == ("Bob's", "2026-03-06T09:00:00+01:00")
    assert CARA in answers(ann, meeting)


def test_a_mailing_list_invites_its_people(ann: CalendarService) -> None:
    body = timed("2026-03-04", "09:00", "10:00", attendees=[{"email": STAFF}, {"email": BOB, "optional": True}])
    assert {guest["email"] for guest in ann.events_insert("primary", body)["attendees"]} == {ANN, BOB, CARA}


def test_people_are_told_what_the_caller_says_and_rooms_and_senders_never(
    ann: CalendarService, acting: As, store: CalendarStore, refused: Refused
) -> None:
    guests = [{"email": BOB}, {"email": ZOE}, {"email": ANN}, {"email": "room@acme.example"}]
    event = ann.events_insert("primary", timed("2026-03-04", "09:00", "10:00", attendees=guests), "all")["id"]
    ann.events_patch("primary", event, {"attendees": guests[1:], "summary": "x"}, "externalOnly")
    ann.events_patch("primary", event, {"attendees": guests}, "all")
    ann.events_patch("primary", event, {"summary": "silent"})
    told = [{"email": BOB, "responseStatus": "accepted"}, *guests[1:]]
    acting(BOB).events_patch("primary", event, {"attendees": told}, "all")
    ann.events_delete("primary", event, "all")
    sent = [(each["kind"], each["recipient"], each["sentBy"]) for each in store.dump()["notifications"]]
    assert sent == [
        ("invitation", BOB, ANN),
        ("invitation", ZOE, ANN),
        ("update", ZOE, ANN),
        ("invitation", BOB, ANN),
        ("response", ANN, BOB),
        ("cancellation", BOB, ANN),
        ("cancellation", ZOE, ANN),
    ]
    assert "externalOnly" in refused(ann.events_delete, "primary", event, "everyone").message


def test_a_moved_event_has_the_other_calendar_as_its_organizer(
    ann: CalendarService, acting: As, refused: Refused, meeting: str
) -> None:
    assert refused(acting(BOB).events_move, "primary", meeting, "primary").reason == "forbiddenForNonOrganizer"
    assert ann.events_move("primary", meeting, TEAM)["organizer"]["displayName"] == "Design team"
    assert refused(ann.events_get, "primary", meeting).code == 404
    assert ann.events_get(TEAM, meeting)["attendees"][0]["email"] == BOB
    assert refused(ann.events_move, TEAM, meeting, "room@acme.example").code == 403


@pytest.mark.parametrize(
    ("text", "summary", "start"),
    [
        ("Lunch with Ann on 5 March at 12:30", "Lunch with Ann", "2026-03-05T12:30:00+01:00"),
        ("Dentist tomorrow 3pm", "Dentist", "2026-03-03T15:00:00+01:00"),
        ("Call 2026-04-01 09:15", "Call", "2026-04-01T09:15:00+02:00"),
    ],
)
def test_a_line_becomes_an_event_where_it_names_day_and_time(
    ann: CalendarService, text: str, summary: str, start: str
) -> None:
    event = ann.events_quickAdd("primary", text)
    assert (event["summary"], event["start"]["dateTime"]) == (summary, start)


@pytest.mark.parametrize("text", ["Lunch on 5 March", "Lunch", "", "Meet at noonish on 45 March 25:00"])
def test_a_line_without_a_time_is_refused_with_the_tool_that_helps(
    ann: CalendarService, refused: Refused, text: str
) -> None:
    assert "events_insert" in refused(ann.events_quickAdd, "primary", text).message


@pytest.mark.parametrize(
    ("body", "reason", "text"),
    [
        ({}, "required", "start"),
        ({"start": {"dateTime": "2026-03-04T09:00:00"}}, "required", "end"),
        (timed("2026-03-04", "09:00", "08:00"), "timeRangeEmpty", "before it starts"),
        ({"start": {"date": "2026-03-04"}, "end": {"date": "2026-03-04"}}, "timeRangeEmpty", "end.date is 2026-03-05"),
        ({"start": {"date": "2026-03-04"}, "end": {"dateTime": "2026-03-04T09:00:00"}}, "invalid", "both"),
        ({"start": {"dateTime": "tomorrow"}, "end": {"dateTime": "later"}}, "invalid", "2026-03-02T09:00:00+01:00"),
        ({"start": "2026-03-04", "end": "2026-03-05"}, "invalid", "'dateTime'"),
        ({"start": {"date": "2026-02-30"}, "end": {"date": "2026-03-05"}}, "invalid", "YYYY-MM-DD"),
        ({"start": {"date": "1066-10-14"}, "end": {"date": "1066-10-15"}}, "invalid", "1970 to 2100"),
        (timed("2026-03-04", "09:00", "10:00", attendees=[{"email": "Bob"}]), "invalid", "e-mail address"),
        (timed("2026-03-04", "09:00", "10:00", attendees=[*GUESTS, *GUESTS]), "invalid", "twice"),
        (timed("2026-03-04", "09:00", "10:00", colorId="99"), "invalid", "colorId"),
        (timed("2026-03-04", "09:00", "10:00", title="x"), "invalid", "Unknown field 'title'"),
        (timed("2026-03-04", "09:00", "10:00", id="UPPER"), "invalid", "letters a to v"),
        (timed("2026-03-04", "09:00", "10:00", status="cancelled"), "invalid", "cancelled"),
        (timed("2026-03-04", "09:00", "10:00", recurrence=["RRULE:FREQ=SECONDLY"]), "invalid", "FREQ"),
        (timed("2026-03-04", "09:00", "10:00", reminders={"overrides": [{"minutes": -1}]}), "invalid", "40320"),
    ],
)
def test_a_wrong_event_is_refused_and_the_error_says_what_to_change(
    ann: CalendarService, refused: Refused, body: dict[str, Any], reason: str, text: str
) -> None:
    error = refused(ann.events_insert, "primary", body)
    assert (error.code, error.reason) == (400, reason)
    assert text in error.message
    assert error.resource()["error"]["errors"][0]["message"] == error.message


def test_an_unknown_zone_is_named(ann: CalendarService, refused: Refused) -> None:
    for name in ("Berlin", "Europe", "../../etc/passwd", "\x00"):
        body = {"start": {"dateTime": "2026-03-04T09:00:00", "timeZone": name}, "end": {"date": "2026-03-05"}}
        assert "IANA" in refused(ann.events_insert, "primary", body).message


def test_a_failure_in_the_middle_leaves_nothing_behind(
    ann: CalendarService, store: CalendarStore, meeting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space")

    before = store.dump()
    monkeypatch.setattr(store, "notify", fail)
    with pytest.raises(OSError, match="no space"):
        ann.events_patch("primary", meeting, {"summary": "half"}, "all")
    with pytest.raises(OSError, match="no space"):
        ann.events_insert("primary", timed("2026-03-04", "09:00", "10:00", attendees=GUESTS), "all")
    monkeypatch.undo()
    assert store.dump() == before
    assert ann.events_patch("primary", meeting, {"summary": "whole"}, "all")["summary"] == "whole"


texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts | st.sampled_from([ANN, TEAM, "primary", "2026-03-04"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["date", "dateTime", "email"]) | texts, inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(["summary", "start", "attendees", "recurrence", "reminders", "extendedProperties"]),
    value=values,
)
def test_whatever_is_given_is_kept_or_refused_as_the_api_refuses(name: str, value: Any) -> None:
    store = CalendarStore(id_seed="random")
    store.add_user(ANN, "Ann")
    service = CalendarService(store, ANN, NOW)
    event = store.add_event(ANN, timed("2026-03-04", "09:00", "10:00"))
    before = store.dump()
    with contextlib.suppress(CalendarError):
        service.events_patch("primary", event, {name: value})
        before = store.dump()
    assert store.dump() == before
    service.events_list("primary", singleEvents=True)
    store.close()
