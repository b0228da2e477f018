"""What a task wants of the calendars at the end, as parts that each give a share of the score.

A part looks at the difference between the calendars before and after, says how much of it is reached (0 to 1), and
claims the changes that it called for. What no part claims was nobody's wish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from calendar_env.tasks.occurrences import Key
from calendar_env.tasks.snapshot import DEFAULTS, Difference, Fields, changed_fields


class Part(Protocol):
    """A part of a goal."""

    @property
    def name(self) -> str:
        """What it is about, in a word or two; not shown to the agent before the end."""
        ...

    def reached(self, difference: Difference, message: str) -> float:
        """How much of it is reached, from 0 to 1. Claims what it called for."""
        ...


@dataclass(frozen=True)
class Gone:
    """Occurrences that shall not be there any more."""

    name: str
    keys: Sequence[Key]

    def reached(self, difference: Difference, message: str) -> float:
        """The share of them that is gone."""
        gone = difference.removed & set(self.keys)
        difference.removed -= gone
        return len(gone) / len(self.keys)


@dataclass(frozen=True)
class KeepOne:
    """Of occurrences that say the same, all but one shall go; any of them may stay."""

    name: str
    keys: Sequence[Key]

    def reached(self, difference: Difference, message: str) -> float:
        """The share of the surplus that is gone; 0 where none is left."""
        gone = sorted(difference.removed & set(self.keys))
        surplus = len(self.keys) - 1
        difference.removed -= set(gone[:surplus])
        return len(gone) / surplus if len(gone) <= surplus else 0.0


@dataclass(frozen=True)
class Changed:
    """An occurrence that shall be otherwise.

    A series may be changed as a whole, split in two, or given exceptions: where the occurrence itself is gone, a new
    one that is the same but for the change takes its place.

    Attributes:
        name: What it is about.
        key: The occurrence.
        wanted: The fields that shall change: their values; None for a field that shall go; or a test of the value.
        any_of: Fields (such as rooms) of which exactly one shall be there, with its value.
        loose: Beginnings of names of other fields that may change with it.
    """

    name: str
    key: Key
    wanted: Mapping[str, Any]
    any_of: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loose: Sequence[str] = ()

    def reached(self, difference: Difference, message: str) -> float:
        """The share of the fields that are as wanted; 0 while nothing has changed."""
        old = difference.before.occurrences[self.key]
        if self.key in difference.changed:
            new = difference.after.occurrences[self.key]
            names = {*self.wanted, *self.any_of, *self._loosely(difference.changed[self.key], old, new)}
            touched = bool(difference.changed[self.key] & {*self.wanted, *self.any_of})
            difference.claim(self.key, names)
            return self._share(new) if touched else 0.0
        if self.key not in difference.removed:
            return 0.0
        new_key = self._successor(old, difference)
        if new_key is None:
            return 0.0
        difference.removed.discard(self.key)
        difference.added.discard(new_key)
        new = difference.after.occurrences[new_key]
        other = changed_fields(old, new) - {
            *self.wanted,
            *self.any_of,
            *self._loosely(changed_fields(old, new), old, new),
        }
        return self._share(new) * (0.5 if other else 1.0)

    def _loosely(self, names: set[str], old: Fields, new: Fields) -> list[str]:
        # Rooms answer anew when the time changes. Who is new on the list, or off it, is another matter.
        time = bool({"start", "end"} & self.wanted.keys())
        return [
            name
            for name in names
            if name.startswith(tuple(self.loose))
            or (time and name.startswith(("guest ", "room ")) and name in old and name in new)
        ]

    def _successor(self, old: Fields, difference: Difference) -> Key | None:
        new = difference.after.occurrences
        start = self.wanted.get("start", old["start"])
        title = self.wanted.get("summary", old["summary"])
        calendar = self.wanted.get("calendar", old["calendar"])
        at_start = [key for key in difference.added_at.get(start, ()) if key in difference.added]
        at_start = [key for key in at_start if new[key]["calendar"] == calendar]
        if self.key in difference.before.far:  # hundreds, for each of which nobody looks far
            return next((key for key in at_start if new[key]["summary"] == title), next(iter(at_start), None))

        def likeness(key: Key) -> tuple[float, float]:
            fields = new[key]
            same = (fields["start"] == start) + (fields["summary"] in (title, old["summary"]))
            return same, -abs((fields["start"] - start).total_seconds())

        close = [key for key in difference.added if key not in difference.after.far]
        near = [key for key in (*close, *at_start) if new[key]["calendar"] == calendar and likeness(key)[0] > 0]
        return max(sorted(near), key=likeness, default=None)

    def _share(self, new: Fields) -> float:
        right = sum(as_wanted(new.get(name), value) for name, value in self.wanted.items())
        count = len(self.wanted)
        if self.any_of:
            count += 1
            right += _one_of(new, self.any_of)
        return right / count


@dataclass(frozen=True)
class New:
    """An occurrence that shall come to be.

    Attributes:
        name: What it is about.
        fields: Its fields: values or tests. "calendar", "summary", "start" and "end" must be among them.
        guests: Addresses of exactly those who are invited, beside rooms.
        rooms: Addresses of rooms, of which exactly one shall be booked; empty for none.
        calendar: Finds the calendar's id in the calendars after; for calendars that the agent makes.
    """

    name: str
    fields: Mapping[str, Any]
    guests: Sequence[str] = ()
    rooms: Sequence[str] = ()
    calendar: Callable[[Difference], str | None] | None = None

    def reached(self, difference: Difference, message: str) -> float:
        """How much of it is right, of the new occurrence that is most like it."""
        wanted = dict(self.fields)
        if self.calendar is not None:
            wanted["calendar"] = self.calendar(difference)
        near = difference.added - difference.after.far
        shares = {key: self._share(difference.after.occurrences[key], wanted) for key in near}
        best = max(sorted(shares), key=lambda key: shares[key], default=None)
        if best is None or shares[best] == 0.0:
            return 0.0
        difference.added.discard(best)
        return shares[best]

    def _share(self, new: Fields, wanted: Mapping[str, Any]) -> float:
        title = as_wanted(new["summary"], wanted["summary"])
        when = [as_wanted(new[name], wanted[name]) for name in ("start", "end")]
        if not title and not when[0]:
            return 0.0
        invited = {name for name in new if name.startswith("guest ")}
        right_guests = invited == {f"guest {email}" for email in self.guests}
        booked = {name: value for name, value in new.items() if name.startswith("room ")}
        right_room = len(booked) == 1 and _one_of(new, {f"room {email}": "accepted" for email in self.rooms})
        rest = {name: value for name, value in wanted.items() if name not in ("summary", "start", "end")}
        # What was not asked for is as usual, except that words about the event, or where its room is, do no harm.
        free = ("description", "location") if self.rooms else ("description",)
        unasked = {name for name in new if not name.startswith(("guest ", "room "))} - {*_NAMED, *free}
        usual = {name: DEFAULTS.get(name) for name in unasked} | {"whole days": False}
        others = [as_wanted(new.get(name), value) for name, value in {**usual, **rest}.items()]
        weights = _WEIGHTS_WITH_ROOM if self.rooms else _WEIGHTS
        terms = (title, *when, right_guests, right_room if self.rooms else not booked, all(others))
        return 1.0 if all(terms) else sum(weight * good for weight, good in zip(weights, terms, strict=True))


_NAMED = ("calendar", "summary", "start", "end")
_WEIGHTS = (0.1, 0.45, 0.15, 0.15, 0.05, 0.1)
"""What of a new event counts how much: title, start, end, guests, no room, all else."""
_WEIGHTS_WITH_ROOM = (0.1, 0.3, 0.1, 0.15, 0.3, 0.05)
"""The same where a room is asked for."""


@dataclass(frozen=True)
class Each:
    """Several parts that count as one, each as much as the next."""

    name: str
    parts: Sequence[Part]

    def reached(self, difference: Difference, message: str) -> float:
        """The mean of them."""
        return sum(part.reached(difference, message) for part in self.parts) / len(self.parts)


def same_title(title: str) -> Callable[[Any], bool]:
    """Whether a title is that one, but for white space at its ends and capitals."""
    return lambda value: isinstance(value, str) and value.strip().casefold() == title.casefold()


def as_wanted(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, or passes the wanted test."""
    return bool(wanted(value)) if callable(wanted) else value == wanted


def _one_of(new: Fields, choices: Mapping[str, Any]) -> bool:
    there = [name for name in choices if name in new]
    return len(there) == 1 and as_wanted(new[there[0]], choices[there[0]])
