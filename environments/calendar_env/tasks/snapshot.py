"""A whole store as what a person would call its content, and the difference between two of them.

Content is: every occurrence with its fields laid flat, and every row of calendars, sharing, lists and settings. What
only counts writes (etags, sequence numbers, times of update) is not content, nor is the way a series is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calendar_env.server.event_body import DEFAULTS as EVENT_DEFAULTS
from calendar_env.tasks.occurrences import Key, Occurrence, occurrences

if TYPE_CHECKING:
    from calendar_env.tasks.world import World

Fields = dict[str, Any]
"""An occurrence laid flat: "summary", "start", "guest ann@acme.example", "room opal@acme.example" (its answer), ...."""

_NOT_CONTENT = frozenset(
    (
        *("attendees", "calendarId", "created", "creator", "end", "etag", "iCalUID", "id", "kind", "organizer"),
        *("originalStartTime", "recurrence", "recurringEventId", "sequence", "start", "updated"),
    )
)
DEFAULTS: Mapping[str, Any] = {**EVENT_DEFAULTS, "description": "", "location": "", "summary": ""}
_TABLES = ("users", "groups", "calendars", "calendarList", "acl", "settings")

Row = tuple[str, str]
"""A table's name and a row's key."""


@dataclass(frozen=True)
class Snapshot:
    """What a store holds.

    Attributes:
        occurrences: The fields of each occurrence.
        rows: The values of all other rows.
        mail: Who was written to: the kind of mail, the event's id, and the recipient.
        identifiers: The id by which the API calls each occurrence.
        far: Occurrences before or after the time that matters; of events that changed alone.
    """

    occurrences: Mapping[Key, Fields]
    rows: Mapping[Row, Any]
    mail: tuple[tuple[str, str, str], ...]
    identifiers: Mapping[Key, str]
    far: frozenset[Key] = frozenset()


def snapshot(
    dump: Mapping[str, Any], horizon: tuple[datetime, datetime], user: str, whole: Collection[str] = ()
) -> Snapshot:
    """The content of a dump; only the user's own answers are of interest.

    Args:
        dump: The store's content.
        horizon: From when to when all events are looked at.
        user: The acting user.
        whole: Ids of events and series that are looked at also before and after that.
    """
    rooms = frozenset(name for name, row in dump["calendars"].items() if row.get("kind") == "room")
    found = occurrences(dump["events"], *horizon, whole)
    begin, end = horizon
    rows = {(table, name): row for table in _TABLES for name, row in dump[table].items()}
    mail = tuple((each["kind"], each["eventId"], each["recipient"]) for each in dump["notifications"])
    # The occurrences of a series share what does not differ, as there may be a thousand of them.
    shared: dict[int, Fields] = {}
    flat: dict[Key, Fields] = {}
    for each in found:
        fields = shared.get(id(each.event))
        if fields is None:
            fields = shared[id(each.event)] = laid_flat(each, user, rooms)
        flat[each.key] = {**fields, "start": each.start, "end": each.end}
    return Snapshot(
        flat,
        rows,
        mail,
        {each.key: each.identifier for each in found},
        frozenset(each.key for each in found if each.start >= end or each.end <= begin),
    )


def changed_events(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Ids of events and series that are not the same in two dumps; those of a series for its changed instances."""
    old, new = before["events"], after["events"]
    found = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return {(new.get(name) or old[name]).get("recurringEventId", name) for name in found}


def preview(world: World, user: str) -> Snapshot:
    """The occurrences of a world that is in no store yet; rooms look like guests."""
    found = world.occurrences()
    return Snapshot(
        {each.key: laid_flat(each, user) for each in found}, {}, (), {each.key: each.identifier for each in found}
    )


def laid_flat(occurrence: Occurrence, user: str, rooms: Iterable[str] = ()) -> Fields:
    """The fields of an occurrence.

    Other people's answers are not among them: they fall back to none when a meeting moves, and nobody answers for
    others.
    """
    event = occurrence.event
    fields: Fields = {**DEFAULTS, **{name: value for name, value in event.items() if name not in _NOT_CONTENT}}
    fields["calendar"] = event["calendarId"]
    fields["whole days"] = occurrence.whole_days
    fields["start"], fields["end"] = occurrence.start, occurrence.end
    for guest in event.get("attendees", ()):
        if guest.get("own"):
            fields[f"own settings of {guest['email']}"] = guest["own"]
        answer = guest.get("responseStatus", "needsAction")
        for name in ("additionalGuests", *(("comment",) if guest["email"] == user else ())):
            if guest.get(name):
                fields[f"{name} of {guest['email']}"] = guest[name]
        if guest["email"] == event["calendarId"] and guest["email"] not in rooms:
            # The organizer's own entry says something only where the user does not come to the own meeting.
            if guest["email"] == user and answer in ("declined", "tentative"):
                fields["the organizer's answer"] = answer
            continue
        if guest["email"] in rooms:
            fields[f"room {guest['email']}"] = answer
        else:
            fields[f"guest {guest['email']}"] = answer if guest["email"] == user else "invited"
        if guest.get("optional"):
            fields[f"optional {guest['email']}"] = True
    return fields


@dataclass
class Difference:
    """What changed between two snapshots, and what of it no goal has claimed yet.

    Attributes:
        before: The earlier one.
        after: The later one.
        removed: Occurrences that are gone.
        added: Occurrences that are new.
        changed: The names of changed fields by occurrence.
        rows: Rows that were added, removed or changed.
        altered: Ids of events and series of which anything changed, whoever asked for it.
    """

    before: Snapshot
    after: Snapshot
    removed: set[Key] = field(default_factory=set[Key])
    added: set[Key] = field(default_factory=set[Key])
    changed: dict[Key, set[str]] = field(default_factory=dict[Key, set[str]])
    rows: set[Row] = field(default_factory=set[Row])
    altered: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        old, new = self.before.occurrences, self.after.occurrences
        self.removed = set(old) - set(new)
        self.added = set(new) - set(old)
        for key in old.keys() & new.keys():
            names = changed_fields(old[key], new[key])
            if names:
                self.changed[key] = names
        self.altered = frozenset(key[0] for key in (*self.removed, *self.added, *self.changed))
        names = self.before.rows.keys() | self.after.rows.keys()
        self.rows = {name for name in names if self.before.rows.get(name) != self.after.rows.get(name)}

    def claim(self, key: Key, names: Iterable[str]) -> None:
        """Take changed fields of an occurrence out of what nobody asked for."""
        left = self.changed.get(key, set()) - set(names)
        if left:
            self.changed[key] = left
        else:
            self.changed.pop(key, None)

    @cached_property
    def added_at(self) -> Mapping[datetime, Sequence[Key]]:
        """Occurrences that were new in the beginning, by their start, in order."""
        found: dict[datetime, list[Key]] = {}
        for key in sorted(self.added):
            found.setdefault(self.after.occurrences[key]["start"], []).append(key)
        return found

    @property
    def sent(self) -> tuple[tuple[str, str, str], ...]:
        """The mail sent between the two."""
        return self.after.mail[len(self.before.mail) :]


def changed_fields(old: Fields, new: Fields) -> set[str]:
    """The names of the fields that differ."""
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
