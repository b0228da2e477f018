"""What a change of a series does to its instances that were changed before.

They follow the series: a field that an instance had as the series had it changes with it, an instance moves by as much
as the series' start moves, and one that the series no longer has is dropped. What an instance has of its own stays.
"""

from __future__ import annotations

from typing import Any

from calendar_env.server.records import Event, Guest
from calendar_env.server.recurrence import (
    instance_end,
    instance_start,
    instance_suffix,
    series,
    shifted_instance,
    suffix_instance,
)
from calendar_env.server.tables import Tables

_TIMES = ("start", "end", "recurrence")


def carry_over(tables: Tables, before: Event, after: Event, stamp: str) -> None:
    """Have the changed instances of a series follow a change of it.

    Args:
        tables: Where they are.
        before: The series as it was.
        after: The series as it is now.
        stamp: When that is.
    """
    changed: list[Event] = []
    for instance in tables.exceptions(before.id):
        moved = _moved(instance, before, after)
        if moved is None:
            tables.drop_event(instance.id)
            continue
        followed = moved.copy()
        for name in ({*before.body, *after.body}).difference(_TIMES):
            if moved.body.get(name) == before.body.get(name):
                _set(followed.body, name, after.body.get(name))
        followed.guests = _followed_guests(moved, before, after)
        if followed.start != instance.start or followed.end != instance.end:
            _ask_again(followed)
        followed.calendar_id = after.calendar_id
        if followed != instance:
            # One may take the id that another leaves: all go before any comes.
            tables.drop_event(instance.id)
            followed.updated = stamp
            changed.append(followed)
    for event in sorted(changed, key=lambda event: event.id):
        tables.save_event(event)


def _ask_again(event: Event) -> None:
    """People answered for another time: only the organizer's and the rooms' answers stand."""
    for guest in event.guests:
        if guest.email != event.calendar_id and not guest.data.get("resource"):
            guest.data["responseStatus"] = "needsAction"


def _moved(instance: Event, before: Event, after: Event) -> Event | None:
    """The instance where its series is now; None where the series has it no longer."""
    assert instance.original_start is not None
    then = suffix_instance(instance.original_start, before.start)
    now = shifted_instance(instance.original_start, before.start, after.start)
    if then is None or now is None or not after.is_series or now not in series(after.body["recurrence"], after.start):
        return None
    moved = instance.copy()
    old_begin, begin = instance_start(then, before.start), instance_start(now, after.start)
    moved.original_start = instance_suffix(begin)
    moved.id = f"{after.id}_{moved.original_start}"
    if instance.start == old_begin and instance.end == instance_end(old_begin, before.start, before.end):
        moved.body["start"], moved.body["end"] = begin, instance_end(begin, after.start, after.end)
    return moved


def _followed_guests(instance: Event, before: Event, after: Event) -> list[Guest]:
    guests = {guest.email: guest for guest in instance.copy().guests}
    for guest in before.guests:
        now, mine = after.guest(guest.email), guests.get(guest.email)
        if mine is None:
            continue
        if now is None:
            del guests[guest.email]
        elif now != guest:
            for name in {*guest.data, *now.data}:
                if mine.data.get(name) == guest.data.get(name):
                    _set(mine.data, name, now.data.get(name))
            for name in {*guest.own, *now.own}:
                if mine.own.get(name) == guest.own.get(name):
                    _set(mine.own, name, now.own.get(name))
            mine.removed = now.removed
    for guest in after.copy().guests:
        if before.guest(guest.email) is None:
            guests.setdefault(guest.email, guest)
    return list(guests.values())


def _set(fields: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value
