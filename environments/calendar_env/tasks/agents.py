"""Agents to hold scores against: one that does nothing, one that destroys, one at random, and careless solvers.

A careless solver is the scripted solver with one flaw put between it and the tools: what a model that nearly
understands would do. Its score shows what the flaw costs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from calendar_env.tasks.solvers import solve
from calendar_env.tasks.solvers.desk import Desk, Refused, Resource, Tools
from calendar_env.tasks.task import GeneratedTask

Agent = Callable[[GeneratedTask, Tools], str]
"""Plays a task with tools; returns its last message."""

WRITES = re.compile(r"_(insert|patch|update|delete|move|clear|quickAdd)$")
"""Names of tools that change something end like this."""

_OTHER_ZONE = "Asia/Tokyo"  # where no company of the tasks has people


def do_nothing(task: GeneratedTask, tools: Tools) -> str:
    """Finish at once."""
    return ""


def destroy(task: GeneratedTask, tools: Tools) -> str:
    """Delete every event, rule and calendar that the user may delete."""
    desk = Desk(tools, task.acting_user)
    for entry in desk.all_pages("calendarList_list"):
        if entry["accessRole"] not in ("writer", "owner"):
            continue
        for event in desk.all_pages("events_list", calendarId=entry["id"]):
            if "recurringEventId" not in event:
                _try(desk, "events_delete", calendarId=entry["id"], eventId=event["id"])
        if entry["accessRole"] == "owner":
            for rule in desk.all_pages("acl_list", calendarId=entry["id"]):
                if rule["id"] != f"user:{desk.user}":
                    _try(desk, "acl_delete", calendarId=entry["id"], ruleId=rule["id"])
            if entry["id"] != desk.user:
                _try(desk, "calendars_delete", calendarId=entry["id"])
    return "Done."


def act_at_random(task: GeneratedTask, tools: Tools, *, calls: int = 25) -> str:
    """Call tools at random, on things that are there."""
    desk, rng = Desk(tools, task.acting_user), random.Random(task.id)
    events = desk.events(task.now, task.now + timedelta(weeks=3))
    people = [each["primaryEmail"] for each in desk.all_pages("users_list", key="users")]
    for _ in range(calls):
        event, person = rng.choice(events), rng.choice(people)
        start = task.now + timedelta(hours=rng.randrange(1, 300))
        span = {name: {"dateTime": (start + timedelta(hours=n)).isoformat()} for n, name in enumerate(("start", "end"))}
        where = {"calendarId": "primary", "eventId": event["id"]}
        choices: list[tuple[str, Resource]] = [
            ("events_insert", {"calendarId": "primary", "summary": "Meeting", **span}),
            ("events_patch", {**where, **span}),
            ("events_patch", {**where, "summary": "Something else"}),
            ("events_delete", where),
            ("events_get", where),
            ("acl_insert", {"calendarId": "primary", "role": "reader", "scope": {"type": "user", "value": person}}),
            (
                "freebusy_query",
                {"timeMin": task.now.isoformat(), "timeMax": start.isoformat(), "items": [{"id": person}]},
            ),
        ]
        tool, arguments = rng.choice(choices)
        _try(desk, tool, **arguments)
    return str(rng.randint(0, 9))


@dataclass
class Careless:
    """The scripted solver with a flaw.

    Attributes:
        name: What it does wrong.
        spoil: Given a call that changes something and what is known, the call as it is made.
        message: Changes the last message.
        committed: Whether the flaw came to bear in the last task played.
    """

    name: str
    spoil: Callable[[str, Resource, Desk], Resource | None] = lambda tool, arguments, desk: None
    message: Callable[[str], str] = lambda message: message
    twice: bool = False
    stops_early: bool = False
    meddles: bool = False
    committed: bool = False

    def __call__(self, task: GeneratedTask, tools: Tools) -> str:
        """Play a task."""
        self.committed = False
        desk = Desk(tools, task.acting_user)
        bystanders = self._bystanders(task, desk) if self.meddles else []
        try:
            said = solve(task, _Spoiled(tools, self, task.acting_user))
        except (Refused, LookupError, StopIteration):
            said = "I could not do it."  # the flaw has led it astray
        for event in bystanders:
            self.committed |= _try(desk, "events_patch", calendarId="primary", eventId=event["id"], colorId="3")
        changed = self.message(said)
        self.committed |= changed != said
        return changed

    def _bystanders(self, task: GeneratedTask, desk: Desk) -> list[Resource]:
        """One event of the user's that is there before."""
        found = desk.events(task.now, task.now + timedelta(weeks=4))
        return [each for each in found if desk.is_mine(each)][-1:]


class _Spoiled:
    """Tools with a flaw before them."""

    def __init__(self, tools: Tools, flaw: Careless, user: str) -> None:
        self._tools, self._flaw, self._desk = tools, flaw, Desk(tools, user)

    def call(self, tool: str, arguments: Resource) -> Resource:
        if not WRITES.search(tool):
            return self._tools.call(tool, arguments)
        if self._flaw.stops_early:
            self._flaw.committed = True
            raise LookupError("It stops here.")
        spoiled = self._flaw.spoil(tool, arguments, self._desk)
        if spoiled is not None and spoiled != arguments:
            self._flaw.committed = True
            arguments = spoiled
        answer = self._tools.call(tool, arguments)
        if self._flaw.twice and tool.endswith("_insert") and not tool.startswith("acl"):
            self._flaw.committed = True
            self._tools.call(tool, arguments)
        return answer


def _wrong_zone(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """The right time of day on the wrong clock."""
    if "dateTime" not in arguments.get("start", {}):
        return None
    spoiled = dict(arguments)
    for name in ("start", "end"):
        local = datetime.fromisoformat(arguments[name]["dateTime"]).replace(tzinfo=ZoneInfo(_OTHER_ZONE))
        spoiled[name] = {"dateTime": local.isoformat(), "timeZone": _OTHER_ZONE}
    return spoiled


def _late(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """An hour late, or a day where it lasts whole days."""
    if "start" not in arguments:
        return None
    spoiled = dict(arguments)
    for name in ("start", "end"):
        value = arguments[name]
        if "date" in value:
            spoiled[name] = {"date": (datetime.fromisoformat(value["date"]) + timedelta(days=1)).date().isoformat()}
        else:
            later = datetime.fromisoformat(value["dateTime"]) + timedelta(hours=1)
            spoiled[name] = {**value, "dateTime": later.isoformat()}
    return spoiled


def _whole_series(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """The series in place of one of its dates."""
    identifier = str(arguments.get("eventId", ""))
    return {**arguments, "eventId": identifier.split("_")[0]} if "_" in identifier else None


def _no_room(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """Guests without the room."""
    attendees = [each for each in arguments.get("attendees", ()) if not each["email"].startswith("room-")]
    return {**arguments, "attendees": attendees} if "attendees" in arguments else None


def _wrong_person(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """Another colleague than the one who was meant."""
    people = [each["primaryEmail"] for each in desk.all_pages("users_list", key="users")]
    scope = arguments.get("scope", {})
    if scope.get("type") == "user":
        other = next(each for each in people if each not in (scope["value"], desk.user))
        return {**arguments, "scope": {**scope, "value": other}}
    attendees = arguments.get("attendees", ())
    there = {each["email"] for each in attendees}
    meant = next((each for each in attendees if each["email"] in people and each["email"] != desk.user), None)
    others = [each for each in people if each not in there and each != desk.user]
    if tool != "events_insert" or meant is None or not others:
        return None
    spoiled = [{**each, "email": others[0]} if each is meant else each for each in attendees]
    return {**arguments, "attendees": spoiled}


def _too_many_rights(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """Owner, to be on the safe side."""
    return {**arguments, "role": "owner"} if "role" in arguments else None


def _wrong_answer(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """Yes for no, and no for the rest."""
    mine = [each for each in arguments.get("attendees", ()) if each["email"] == desk.user]
    if tool != "events_patch" or not mine or "responseStatus" not in mine[0] or "start" in arguments:
        return None
    given = "accepted" if mine[0]["responseStatus"] == "declined" else "declined"
    event = desk.call("events_get", calendarId="primary", eventId=arguments["eventId"])
    if desk.is_mine(event):
        return None
    attendees = [{**each, "responseStatus": given} if each is mine[0] else each for each in arguments["attendees"]]
    return {**arguments, "attendees": attendees}


def _untold(tool: str, arguments: Resource, desk: Desk) -> Resource | None:
    """Without the mail that was asked for."""
    return {**arguments, "sendUpdates": "none"} if arguments.get("sendUpdates") == "all" else None


def _one_more(message: str) -> str:
    """The last digit of an answer one up."""
    if not re.fullmatch(r"[\d.: -]+", message):
        return message
    return f"{message[:-1]}{(int(message[-1]) + 1) % 10}"


CARELESS: tuple[Careless, ...] = (
    Careless("wrong time zone", spoil=_wrong_zone),
    Careless("an hour late", spoil=_late),
    Careless("whole series", spoil=_whole_series),
    Careless("forgets the room", spoil=_no_room),
    Careless("wrong person", spoil=_wrong_person),
    Careless("too many rights", spoil=_too_many_rights),
    Careless("wrong reply", spoil=_wrong_answer),
    Careless("no mail", spoil=_untold),
    Careless("everything twice", twice=True),
    Careless("stops before it acts", stops_early=True),
    Careless("meddles", meddles=True),
    Careless("wrong answer", message=_one_more),
)
"""Careless solvers, one for each flaw."""


def _try(desk: Desk, tool: str, **arguments: Any) -> bool:
    """Whether the call was not refused."""
    try:
        desk.call(tool, **arguments)
    except Refused:
        return False
    return True
