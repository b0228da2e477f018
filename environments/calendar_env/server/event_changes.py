"""Changing an event: what its organizer may do, what a guest may, and what follows from it.

The organizer's calendar holds the shared fields. On a guest's calendar the same event has the guest's own answer,
reminders, colour, transparency and visibility; the shared fields are the guest's to change only where the organizer
allowed it.
"""

from __future__ import annotations

from typing import Any

from calendar_env.server.context import Resource, ServiceContext
from calendar_env.server.errors import deleted, forbidden, invalid, quota, required
from calendar_env.server.event_body import DEFAULTS, GUEST_OWN, without_defaults
from calendar_env.server.guests import answer_for_rooms, expanded, invited, tell
from calendar_env.server.records import Event, Guest
from calendar_env.server.recurrence import read_recurrence
from calendar_env.server.series_changes import carry_over
from calendar_env.server.times import check_range

_TIMES = ("start", "end", "recurrence")
MOST_SERIES = 30
"""Series of one calendar."""
_REPLACEABLE = (
    *("summary", "description", "location", "recurrence", "attendees", "visibility", "transparency", "colorId"),
    *("reminders", "guestsCanModify", "guestsCanInviteOthers", "guestsCanSeeOtherGuests", "extendedProperties"),
)


def replacement(fields: Resource) -> Resource:
    """The fields of an update, which clears what it does not name.

    Raises:
        CalendarError: It does not say when the event is.
    """
    for name in ("start", "end"):
        if name not in fields:
            raise required(f"{name} (events_update replaces the whole event; events_patch changes a part)")
    return {**{name: DEFAULTS.get(name) for name in _REPLACEABLE}, **fields}


class EventChanges(ServiceContext):
    """The acting user, changing events that are there."""

    def change_event(self, event: Event, calendar_id: str, fields: Resource, send_updates: str) -> Event:
        """Change an event on one of its calendars.

        Args:
            event: The event as it is.
            calendar_id: The calendar that the change is made on: the organizer's or a guest's.
            fields: The fields to set, as they are kept.
            send_updates: Who is told.

        Returns:
            The event as it is now.

        Raises:
            CalendarError: The event cannot be like that, or it is not this user's to change so.
        """
        if event.status == "cancelled" and fields.get("status") in (None, "cancelled"):
            raise deleted(f"event '{event.id}'; events_patch with status 'confirmed' brings it back")
        if event.recurring_event_id is not None and fields.get("recurrence"):
            raise invalid(
                f"'{event.id}' is one instance: it has no recurrence. Change the series '{event.recurring_event_id}'."
            )
        if calendar_id == event.calendar_id:
            return self._change_shared(event, calendar_id, fields, send_updates)
        return self._change_as_guest(event, calendar_id, fields, send_updates)

    def require_room_for_series(self, calendar_id: str) -> None:
        """Refuse one series more than a calendar holds.

        Raises:
            CalendarError: It holds so many.
        """
        if self.store.count_series(calendar_id) >= MOST_SERIES:
            raise quota(f"The calendar '{calendar_id}' has {MOST_SERIES} series. Delete one first.")

    def cancel_event(self, event: Event, calendar_id: str, send_updates: str) -> None:
        """Cancel an event, or take it off a guest's calendar.

        Raises:
            CalendarError: It is gone already.
        """
        guest = event.guest(calendar_id)
        on_organizers = calendar_id == event.calendar_id
        if event.status == "cancelled" or (not on_organizers and (guest is None or guest.removed)):
            raise deleted(f"event '{event.id}'")
        after = event.copy()
        if on_organizers:
            after.status = "cancelled"
            for instance in self.store.exceptions(event.id) if event.is_series else ():
                self.store.drop_event(instance.id)
            tell(self.store, "cancellation", event, event.guests, send_updates, self.acting_user)
        else:
            leaving = after.guest(calendar_id)
            assert leaving is not None
            leaving.removed = True
            leaving.data["responseStatus"] = "declined"
            self._tell_organizer(event, send_updates)
            if event.is_series:
                carry_over(self.store, event, after, self.stamp)
        self.touch(after)

    def _change_shared(
        self, event: Event, calendar_id: str, fields: Resource, send_updates: str, so_far: Event | None = None
    ) -> Event:
        if fields.get("status") == "cancelled" and event.status != "cancelled":
            self.cancel_event(event, calendar_id, send_updates)
            return self.store.event(event.id) or event
        after = (so_far or event).copy()
        shared = {name: value for name, value in fields.items() if name not in ("attendees", "status")}
        after.body = {**event.body, **shared}
        check_range(after.start, after.end)
        if any(name in shared for name in ("start", "recurrence")):
            after.body["recurrence"] = read_recurrence(after.body.get("recurrence") or [], after.start)
        after.body = without_defaults(after.body)
        if after.is_series and not (event.is_series and event.status != "cancelled"):
            self.require_room_for_series(event.calendar_id)
        after.status = fields.get("status") or event.status
        if "attendees" in fields:
            after.guests = invited(self.store, event, fields["attendees"] or [], calendar_id)
        moved = any(after.body.get(name) != event.body.get(name) for name in _TIMES)
        restored = after.status != event.status and event.status == "cancelled"
        if moved:
            self._ask_again(after, calendar_id)
        asked = [guest.email for guest in after.guests if moved or restored or event.guest(guest.email) is None]
        return self._write(event, after, send_updates, asked)

    def _change_as_guest(self, event: Event, calendar_id: str, fields: Resource, send_updates: str) -> Event:
        after = event.copy()
        me = after.guest(calendar_id)
        if me is None:
            raise forbidden(f"'{calendar_id}' is no guest of the event '{event.id}'.", "forbiddenForNonOrganizer")
        if fields.get("status") == "cancelled":
            self.cancel_event(event, calendar_id, send_updates)
            return self.store.event(event.id) or event
        for name in GUEST_OWN:
            if name in fields and fields[name] != (event.body.get(name) or DEFAULTS.get(name)):
                me.own[name] = fields[name]
            elif name in fields:
                me.own.pop(name, None)
        shared = {
            name: value
            for name, value in fields.items()
            if name not in (*GUEST_OWN, "attendees", "status") and value != _kept(event, name)
        }
        may_modify = event.body.get("guestsCanModify", False)
        if shared and not may_modify:
            raise forbidden(
                "Shared properties can only be changed by the organizer of the event, "
                f"{event.calendar_id}. Here they are: {', '.join(sorted(shared))}.",
                "forbiddenForNonOrganizer",
            )
        entries: list[Resource] = fields.get("attendees") or []
        if "attendees" in fields:
            self._change_guests(event, after, me, entries, may_modify)
        if not shared:
            asked = [guest.email for guest in after.guests if event.guest(guest.email) is None]
            return self._write(event, after, send_updates, asked)
        return self._change_shared(event, event.calendar_id, shared, send_updates, after)

    def _change_guests(self, event: Event, after: Event, me: Guest, entries: list[Resource], may_modify: bool) -> None:
        entries = expanded(self.store, entries)
        mine = next((entry for entry in entries if entry["email"] == me.email), None)
        hidden = not event.body.get("guestsCanSeeOtherGuests", True)
        named = {entry["email"] for entry in entries}
        gone = [guest.email for guest in event.guests if guest.email not in named]
        if mine is None or (gone and not hidden and not may_modify):
            raise forbidden(
                f"A guest cannot take others off the list, nor itself: missing are {', '.join(gone) or me.email}. "
                "Send the whole list of attendees; events_delete takes the event off your own calendar.",
                "forbiddenForNonOrganizer",
            )
        new = [entry for entry in entries if event.guest(entry["email"]) is None]
        if new and not (may_modify or event.body.get("guestsCanInviteOthers", True)):
            raise forbidden(
                f"The organizer, {event.calendar_id}, does not let guests invite others.", "forbiddenForNonOrganizer"
            )
        if may_modify and not hidden:
            after.guests = [guest for guest in after.guests if guest.email in named]
        after.guests += invited(self.store, event, new, me.email)
        me.data["responseStatus"] = mine.get("responseStatus") or me.response
        me.removed = False
        for name in ("comment", "additionalGuests"):
            if name in mine:
                me.data[name] = mine[name]

    def _ask_again(self, after: Event, calendar_id: str) -> None:
        """People answered for another time: only the organizer's own answer stands."""
        after.sequence += 1
        for guest in after.guests:
            if guest.email != calendar_id and not guest.data.get("resource"):
                guest.data["responseStatus"] = "needsAction"
                guest.data.pop("comment", None)

    def _write(self, before: Event, changed: Event, send_updates: str, asked: list[str]) -> Event:
        """Write a change, with what follows from it: changed instances, rooms' answers, messages to people."""
        self._keep(before, changed)
        # Rooms look at the instances as they are now, so that these are written first.
        after = changed.copy()
        answer_for_rooms(self.store, after, self.acting_user, asked)
        self._keep(changed, after)
        kept = [guest for guest in after.guests if before.guest(guest.email) is not None]
        new = [guest for guest in after.guests if before.guest(guest.email) is None]
        gone = [guest for guest in before.guests if after.guest(guest.email) is None]
        tell(self.store, "invitation", after, new, send_updates, self.acting_user)
        tell(self.store, "cancellation", after, gone, send_updates, self.acting_user)
        if after.body != before.body or after.status != before.status:
            tell(self.store, "update", after, kept, send_updates, self.acting_user)
        answers = [guest.response for guest in kept if guest.response != _response(before, guest.email)]
        if any(answer != "needsAction" for answer in answers):
            self._tell_organizer(after, send_updates)
        return after

    def _keep(self, before: Event, after: Event) -> None:
        if after == before:
            return
        self.touch(after)
        if before.is_series:
            carry_over(self.store, before, after, self.stamp)

    def _tell_organizer(self, event: Event, send_updates: str) -> None:
        if send_updates != "none" and event.calendar_id != self.acting_user:
            self.store.notify("response", event.id, event.calendar_id, self.acting_user)


def _response(event: Event, email: str) -> str:
    guest = event.guest(email)
    return "" if guest is None else guest.response


def _kept(event: Event, name: str) -> Any:
    """What an event has in a field, written as callers write it."""
    return event.body.get(name, DEFAULTS.get(name))
