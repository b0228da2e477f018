"""Calendars, lists of them, settings and the directory; long lists in pages, and what changed since the last look."""

from __future__ import annotations

import pytest
from calendar_env.server.errors import CalendarError
from calendar_env.server.service import CalendarService
from calendar_env.server.store import CalendarStore

from .conftest import ANN, BOB, CARA, NOW, STAFF, TEAM, As, Refused, timed


@pytest.fixture
def ann(acting: As) -> CalendarService:
    return acting(ANN)


def test_a_new_calendar_is_its_makers_and_on_the_makers_list(
    ann: CalendarService, acting: As, refused: Refused
) -> None:
    made = ann.calendars_insert({"summary": "Offsite", "timeZone": "Europe/Lisbon"})
    listed = {entry["id"]: entry for entry in ann.calendarList_list()["items"]}
    assert (listed[made["id"]]["accessRole"], listed[made["id"]]["timeZone"]) == ("owner", "Europe/Lisbon")
    assert refused(acting(BOB).calendars_get, made["id"]).code == 404
    event = ann.events_insert(made["id"], timed("2026-03-04", "09:00", "10:00", summary="Walk"))
    assert event["start"]["dateTime"] == "2026-03-04T09:00:00+00:00"
    ann.calendars_patch(made["id"], {"summary": "Away"})
    assert ann.calendars_update(made["id"], {"summary": "Gone"}) == {
        "id": made["id"],
        "summary": "Gone",
        "timeZone": "Europe/Lisbon",
    }
    assert ann.calendars_delete(made["id"]) == {}
    assert refused(ann.events_get, made["id"], event["id"]).code == 404
    assert made["id"] not in [entry["id"] for entry in ann.calendarList_list()["items"]]
    assert refused(ann.calendars_insert, {"description": "x"}).reason == "required"
    assert "Unknown field 'name'" in refused(ann.calendars_insert, {"summary": "x", "name": "y"}).message


def test_a_primary_calendar_is_cleared_and_never_deleted(
    ann: CalendarService, acting: As, refused: Refused, store: CalendarStore
) -> None:
    own = ann.events_insert("primary", timed("2026-03-04", "09:00", "10:00", attendees=[{"email": BOB}]))["id"]
    invited = acting(BOB).events_insert("primary", timed("2026-03-05", "09:00", "10:00", attendees=[{"email": ANN}]))[
        "id"
    ]
    rule = {"recurrence": ["RRULE:FREQ=DAILY;COUNT=3"]}
    series = ann.events_insert("primary", timed("2026-03-06", "09:00", "10:00", **rule))["id"]
    ann.events_patch("primary", f"{series}_20260307T080000Z", {"summary": "changed"})
    assert "calendars_clear" in refused(ann.calendars_delete, "primary").message
    assert "calendars_delete" in refused(ann.calendars_clear, TEAM).message
    ann.calendars_clear("primary")
    assert ann.events_list("primary")["items"] == []
    events = store.dump()["events"]
    assert {name: event["status"] for name, event in events.items()} == {
        own: "cancelled",
        invited: "confirmed",
        series: "cancelled",
    }
    assert acting(BOB).events_get("primary", invited)["attendees"][0]["responseStatus"] == "declined"


def test_a_list_entry_is_the_users_own_view(
    ann: CalendarService, acting: As, refused: Refused, store: CalendarStore
) -> None:
    store.add_acl(TEAM, "group", STAFF, "reader")
    bob = acting(BOB)
    assert "calendarList_insert" in refused(bob.calendarList_get, TEAM).message
    bob.calendarList_insert({"id": TEAM, "summaryOverride": "Them", "colorId": "7", "hidden": True})
    assert TEAM not in [entry["id"] for entry in bob.calendarList_list()["items"]]
    shown = next(entry for entry in bob.calendarList_list(showHidden=True)["items"] if entry["id"] == TEAM)
    assert (shown["summaryOverride"], shown["colorId"], shown["summary"]) == ("Them", "7", "Design team")
    assert "summaryOverride" not in ann.calendarList_get(TEAM)
    replaced = bob.calendarList_update(TEAM, {"selected": False})
    assert (replaced["selected"], "summaryOverride" in replaced, "hidden" in replaced) == (False, False, False)
    assert [entry["id"] for entry in bob.calendarList_list(minAccessRole="writer")["items"]] == [BOB]
    bob.calendarList_delete(TEAM)
    assert refused(bob.calendarList_delete, TEAM).code == 404
    assert refused(bob.calendarList_delete, "primary").code == 400
    assert "colors_get" in refused(bob.calendarList_patch, "primary", {"colorId": "77"}).message
    assert bob.colors_get()["event"]["11"]["name"] == "Tomato"


def test_pages_hold_everything_once_and_in_order(ann: CalendarService, refused: Refused) -> None:
    for minute in range(10, 57, 2):
        ann.events_insert("primary", timed("2026-03-04", f"09:{minute}", f"09:{minute + 1}", summary=str(minute)))
    whole = ann.events_list("primary", singleEvents=True, orderBy="startTime")["items"]
    paged, token, pages = [], None, 0
    while pages == 0 or token:
        answer = ann.events_list("primary", singleEvents=True, orderBy="startTime", maxResults=7, pageToken=token)
        paged += answer["items"]
        token, pages = answer.get("nextPageToken"), pages + 1
    assert (paged, pages) == (whole, 4)
    assert [event["summary"] for event in whole] == sorted(event["summary"] for event in whole)
    for wrong in ("x", "cGFnZTo5OTk", "cGFnZTot", "💥"):
        assert refused(ann.events_list, "primary", pageToken=wrong).reason == "invalidParameter"
    for size in (0, -1, "7"):
        assert refused(ann.events_list, "primary", maxResults=size).code == 400


def test_a_sync_token_brings_what_changed_and_what_is_gone(ann: CalendarService, refused: Refused) -> None:
    kept, changed, gone = (
        ann.events_insert("primary", timed("2026-03-04", f"{hour}:00", f"{hour}:30"))["id"] for hour in (10, 11, 12)
    )
    token = ann.events_list("primary")["nextSyncToken"]
    assert ann.events_list("primary", syncToken=token)["items"] == []
    ann.events_patch("primary", changed, {"summary": "x"})
    ann.events_delete("primary", gone)
    answer = ann.events_list("primary", syncToken=token)
    assert {event["id"]: event["status"] for event in answer["items"]} == {changed: "confirmed", gone: "cancelled"}
    assert ann.events_list("primary", syncToken=answer["nextSyncToken"])["items"] == []
    assert kept not in [event["id"] for event in answer["items"]]
    stale = refused(ann.events_list, "primary", syncToken="sync-999999")
    assert (stale.code, stale.reason) == (410, "fullSyncRequired")
    assert refused(ann.events_list, "primary", syncToken=token, q="x").code == 400


def test_windows_searches_and_orders_find_what_they_say(ann: CalendarService, refused: Refused) -> None:
    early = ann.events_insert("primary", timed("2026-03-04", "09:00", "10:00", summary="Budget review"))["id"]
    late = ann.events_insert("primary", timed("2026-03-05", "09:00", "10:00", description="the BUDGET"))["id"]
    away = ann.events_insert(
        "primary", {"start": {"date": "2026-03-06"}, "end": {"date": "2026-03-07"}, "eventType": "outOfOffice"}
    )["id"]
    ann.events_patch("primary", early, {"location": "Elbe"})

    def found(**arguments: object) -> list[str]:
        return [event["id"] for event in ann.events_list("primary", **arguments)["items"]]  # type: ignore[arg-type]

    assert found(q="budget") == [early, late]
    assert found(q="budget elbe") == [early]
    assert found(q="Ann Weber") == [early, late, away]
    assert found(timeMin="2026-03-04T10:00:00+01:00", timeMax="2026-03-05T09:00:00+01:00") == []
    assert found(timeMin="2026-03-04T09:59:00+01:00", timeMax="2026-03-05T09:01:00+01:00") == [early, late]
    assert found(eventTypes=["outOfOffice"]) == [away]
    assert found(orderBy="updated") == [late, away, early]
    assert found(iCalUID=f"{late}@calendar.example") == [late]
    assert "singleEvents" in refused(ann.events_list, "primary", orderBy="startTime").message
    assert (
        "later"
        in refused(ann.events_list, "primary", timeMin="2026-03-05T00:00:00Z", timeMax="2026-03-04T00:00:00Z").message
    )


def test_the_directory_tells_who_there_is_and_when_they_work(ann: CalendarService, refused: Refused) -> None:
    assert [user["primaryEmail"] for user in ann.users_list(query="design")["users"]] == [ANN]
    assert [user["name"] for user in ann.users_list(role="assistant")["users"]] == ["Cara Lind"]
    cara = ann.users_get(CARA)
    assert (cara["timeZone"], cara["workingHours"]["MO"]) == ("America/New_York", ["09:00", "17:00"])
    assert ann.users_get("me")["primaryEmail"] == ANN
    assert ann.groups_list()["groups"] == [{"email": STAFF, "name": "staff", "members": [ANN, BOB, CARA]}]
    assert ann.settings_get("timezone") == {"id": "timezone", "value": "Europe/Berlin"}
    assert "weekStart" in [each["id"] for each in ann.settings_list()["items"]]
    assert "users_list" in refused(ann.users_get, "nobody@acme.example").message
    assert "settings_list" in refused(ann.settings_get, "volume").message


def test_flat_arguments_are_the_bodys_fields_and_others_are_refused(ann: CalendarService) -> None:
    event = ann.call(
        "events_insert", {"calendarId": "primary", **timed("2026-03-04", "09:00", "10:00"), "summary": "x"}
    )
    assert ann.call("events_get", {"calendarId": "primary", "eventId": event["id"], "timeZone": None})["summary"] == "x"
    for name, arguments, text in (
        ("events_explode", {}, "Unknown tool"),
        ("call", {}, "Unknown tool"),
        ("touch", {"event": None}, "Unknown tool"),
        ("events_get", {"calendarId": "primary"}, "eventId"),
        ("events_get", {"calendarId": "primary", "eventId": event["id"], "colour": 1}, "colour"),
    ):
        with pytest.raises(CalendarError, match=text):
            ann.call(name, arguments)


def test_text_is_only_ever_text_to_the_database(ann: CalendarService, store: CalendarStore) -> None:
    evil = "x'); DROP TABLE events; --"
    event = ann.events_insert("primary", timed("2026-03-04", "09:00", "10:00", summary=evil))
    assert ann.events_get("primary", event["id"])["summary"] == evil
    assert ann.events_list("primary", q=evil)["items"][0]["id"] == event["id"]
    ann.calendars_insert({"summary": evil})
    for call in (ann.calendars_get, ann.users_get, ann.settings_get):
        with pytest.raises(CalendarError):
            call(evil)
    assert len(store.dump()["events"]) == 1


def test_a_clone_is_equal_and_apart(ann: CalendarService, store: CalendarStore) -> None:
    ann.events_insert("primary", timed("2026-03-04", "09:00", "10:00"))
    other = store.clone()
    assert other.dump() == store.dump()
    ann.events_insert("primary", timed("2026-03-05", "09:00", "10:00"))
    assert other.dump() != store.dump()
    # Equal calls on equal stores make up equal ids.
    CalendarService(other, ANN, NOW).events_insert("primary", timed("2026-03-05", "09:00", "10:00"))
    assert other.dump() == store.dump()
    other.close()
