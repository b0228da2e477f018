"""Each role may do what it may, with every tool, and nothing more; and nobody shuts themselves out."""

from __future__ import annotations

from typing import Any

import pytest
from calendar_env.server.access import ROLES, role_on
from calendar_env.server.errors import CalendarError
from calendar_env.server.service import CalendarService, methods
from calendar_env.server.store import CalendarStore

from .conftest import ANN, BOB, NOW, STAFF, TEAM, ZOE, As, Refused, timed

SPAN = {"timeMin": "2026-03-01T00:00:00Z", "timeMax": "2026-04-01T00:00:00Z"}
SHARED = "meet00000001"
SERIES = "serie0000001"

# The least role on the calendar that each tool needs; "own" needs none on it.
LEAST: dict[str, tuple[str, dict[str, Any]]] = {
    "calendars_get": ("freeBusyReader", {"calendarId": TEAM}),
    "calendars_insert": ("own", {"summary": "Mine"}),
    "calendars_patch": ("owner", {"calendarId": TEAM, "description": "New"}),
    "calendars_update": ("owner", {"calendarId": TEAM, "summary": "New"}),
    "calendars_delete": ("owner", {"calendarId": TEAM}),
    "calendars_clear": ("own", {"calendarId": "primary"}),
    "calendarList_list": ("own", {}),
    "calendarList_get": ("freeBusyReader", {"calendarId": TEAM}),
    "calendarList_insert": ("freeBusyReader", {"id": TEAM}),
    "calendarList_patch": ("freeBusyReader", {"calendarId": TEAM, "colorId": "3"}),
    "calendarList_update": ("freeBusyReader", {"calendarId": TEAM, "colorId": "3"}),
    "calendarList_delete": ("freeBusyReader", {"calendarId": TEAM}),
    "events_list": ("freeBusyReader", {"calendarId": TEAM}),
    "events_get": ("freeBusyReader", {"calendarId": TEAM, "eventId": SHARED}),
    "events_instances": ("freeBusyReader", {"calendarId": TEAM, "eventId": SERIES, **SPAN}),
    "events_insert": ("writer", {"calendarId": TEAM, **timed("2026-03-04", "09:00", "10:00")}),
    "events_quickAdd": ("writer", {"calendarId": TEAM, "text": "Lunch on 5 March 12:30"}),
    "events_patch": ("writer", {"calendarId": TEAM, "eventId": SHARED, "summary": "New"}),
    "events_update": ("writer", {"calendarId": TEAM, "eventId": SHARED, **timed("2026-03-04", "09:00", "10:00")}),
    "events_delete": ("writer", {"calendarId": TEAM, "eventId": SHARED}),
    "events_move": ("writer", {"calendarId": TEAM, "eventId": SHARED, "destination": "primary"}),
    "acl_list": ("owner", {"calendarId": TEAM}),
    "acl_get": ("owner", {"calendarId": TEAM, "ruleId": f"user:{ANN}"}),
    "acl_insert": ("owner", {"calendarId": TEAM, "role": "reader", "scope": {"type": "user", "value": ZOE}}),
    "acl_patch": ("owner", {"calendarId": TEAM, "ruleId": f"group:{STAFF}", "role": "reader"}),
    "acl_update": ("owner", {"calendarId": TEAM, "ruleId": f"group:{STAFF}", "role": "reader"}),
    "acl_delete": ("owner", {"calendarId": TEAM, "ruleId": f"group:{STAFF}"}),
    "freebusy_query": ("own", {"items": [{"id": TEAM}], **SPAN}),
    "settings_list": ("own", {}),
    "settings_get": ("own", {"setting": "timezone"}),
    "colors_get": ("own", {}),
    "users_list": ("own", {}),
    "users_get": ("own", {"userKey": ANN}),
    "groups_list": ("own", {}),
    "rooms_list": ("own", {}),
}


@pytest.fixture
def team(store: CalendarStore) -> CalendarStore:
    store.add_event(TEAM, timed("2026-03-03", "09:00", "10:00", id=SHARED, summary="Review"))
    rule = {"recurrence": ["RRULE:FREQ=DAILY;COUNT=3"]}
    store.add_event(TEAM, timed("2026-03-03", "11:00", "12:00", id=SERIES, summary="Daily", **rule))
    store.add_acl(TEAM, "group", STAFF, "none")
    store.add_list_entry(BOB, TEAM)
    return store


def test_every_tool_is_in_the_matrix() -> None:
    assert LEAST.keys() == methods().keys()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", LEAST)
def test_a_tool_works_from_its_least_role_on_and_is_refused_below(team: CalendarStore, name: str, role: str) -> None:
    team.add_acl(TEAM, "user", BOB, role)
    least, arguments = LEAST[name]
    before = team.dump()
    bob = CalendarService(team, BOB, NOW)
    if least == "own" or ROLES.index(role) >= ROLES.index(least):
        assert isinstance(bob.call(name, arguments), dict)
        return
    with pytest.raises(CalendarError) as caught:
        bob.call(name, arguments)
    assert team.dump() == before
    if role == "none":
        assert (caught.value.code, caught.value.reason) == (404, "notFound")
    else:
        assert (caught.value.code, caught.value.reason) == (403, "requiredAccessLevel")
        assert f"{least} access" in caught.value.message
        assert f"yours is {role}" in caught.value.message


@pytest.mark.parametrize("role", ROLES)
def test_freebusy_tells_from_free_busy_reader_on(team: CalendarStore, role: str) -> None:
    team.add_acl(TEAM, "user", BOB, role)
    answer = CalendarService(team, BOB, NOW).call("freebusy_query", LEAST["freebusy_query"][1])["calendars"][TEAM]
    if role == "none":
        assert answer == {"errors": [{"domain": "global", "reason": "notFound"}], "busy": []}
    else:
        assert answer["busy"][0] == {"start": "2026-03-03T08:00:00Z", "end": "2026-03-03T09:00:00Z"}


@pytest.mark.parametrize(
    ("scope", "value", "user", "expected"),
    [
        ("user", BOB, BOB, "reader"),
        ("user", ANN, BOB, "none"),
        ("group", STAFF, BOB, "reader"),
        ("group", STAFF, ZOE, "none"),
        ("domain", "acme.example", BOB, "reader"),
        ("domain", "acme.example", ZOE, "none"),
        ("default", "", ZOE, "reader"),
    ],
)
def test_a_scope_holds_those_whom_it_names(
    store: CalendarStore, scope: str, value: str, user: str, expected: str
) -> None:
    store.execute("DELETE FROM acl WHERE calendar_id = ?", (TEAM,))
    store.add_acl(TEAM, scope, value, "reader")
    assert role_on(store, TEAM, user) == expected


def test_the_greatest_of_several_rules_counts(store: CalendarStore) -> None:
    store.add_acl(TEAM, "domain", "acme.example", "freeBusyReader")
    store.add_acl(TEAM, "group", STAFF, "writer")
    store.add_acl(TEAM, "user", BOB, "reader")
    assert role_on(store, TEAM, BOB) == "writer"


def test_nobody_changes_their_own_access_nor_the_owners(acting: As, refused: Refused, store: CalendarStore) -> None:
    store.add_acl(TEAM, "user", BOB, "owner")
    ann, bob = acting(ANN), acting(BOB)
    own = refused(ann.acl_delete, TEAM, f"user:{ANN}")
    assert (own.code, own.reason) == (403, "cannotChangeOwnAcl")
    assert refused(bob.acl_patch, TEAM, f"user:{BOB}", {"role": "reader"}).reason == "cannotChangeOwnAcl"
    assert refused(bob.acl_patch, TEAM, f"user:{ANN}", {"role": "none"}).reason == "cannotChangeOwnerAcl"
    assert ann.acl_delete(TEAM, f"user:{BOB}") == {}
    assert refused(bob.acl_list, TEAM).code == 404


def test_sharing_is_shown_as_it_was_given(acting: As, refused: Refused) -> None:
    ann = acting(ANN)
    rule = ann.acl_insert(TEAM, {"role": "writer", "scope": {"type": "user", "value": "BOB@acme.example"}})
    assert rule == {"id": f"user:{BOB}", "scope": {"type": "user", "value": BOB}, "role": "writer"}
    assert ann.acl_patch(TEAM, f"user:{BOB}", {"role": "reader"})["role"] == "reader"
    assert rule["id"] in [each["id"] for each in ann.acl_list(TEAM)["items"]]
    assert acting(BOB).calendarList_insert({"id": TEAM})["accessRole"] == "reader"
    assert refused(ann.acl_insert, TEAM, {"role": "editor", "scope": {"type": "user", "value": BOB}}).code == 400
    assert (
        "group 'x@acme.example'"
        in refused(
            ann.acl_insert, TEAM, {"role": "reader", "scope": {"type": "group", "value": "x@acme.example"}}
        ).message
    )
    assert refused(ann.acl_insert, TEAM, {"role": "writer", "scope": {"type": "default"}}).code == 400
    assert refused(ann.acl_insert, TEAM, {"scope": {"type": "default"}}).reason == "required"
    assert "acl_list" in refused(ann.acl_delete, TEAM, "user:nobody@acme.example").message
