"""Events as the API shows them to one viewer, on one calendar: all of it, or only when.

Lists leave out what is seldom read (etag, iCalUID, times of change, creator, reminders): an agent reads many events at
once. Fields that have their usual value are left out everywhere, as the API does.
"""

from __future__ import annotations

from typing import Any

from calendar_env.server.access import at_least, sees_details
from calendar_env.server.agenda import transparency_on
from calendar_env.server.event_body import GUEST_OWN
from calendar_env.server.records import Event
from calendar_env.server.snapshot import original_start_time
from calendar_env.server.tables import Tables
from calendar_env.server.times import in_zone

Resource = dict[str, Any]

_ORDER = (
    *("id", "status", "summary", "description", "location", "start", "end", "recurrence", "recurringEventId"),
    *("originalStartTime", "eventType", "visibility", "transparency", "colorId", "organizer", "creator", "attendees"),
    *("guestsCanModify", "guestsCanInviteOthers", "guestsCanSeeOtherGuests", "reminders", "extendedProperties"),
    *("created", "updated", "iCalUID", "sequence", "etag"),
)
_ONLY_ALONE = ("creator", "reminders", "created", "updated", "iCalUID", "sequence", "etag", "extendedProperties")


class Viewer:
    """One user who looks at one calendar.

    Args:
        tables: Where the events are.
        user: Who looks.
        calendar_id: The calendar that is looked at.
        role: The user's role on it.
    """

    def __init__(self, tables: Tables, user: str, calendar_id: str, role: str) -> None:
        self.tables = tables
        self.user = user
        self.calendar_id = calendar_id
        self.role = role
        row = tables.row("SELECT time_zone FROM calendars WHERE id = ?", (calendar_id,))
        self._zone_name: str | None = None if row is None else row[0]
        self._names: dict[str, str] = {}

    def sees(self, event: Event) -> bool:
        """Whether the viewer sees that an event is there: who sees only when one is busy sees nothing of free time."""
        if at_least(self.role, "reader") or sees_details(event, self.calendar_id, self.role, self.user):
            return True
        return event.status != "cancelled" and transparency_on(event, self.calendar_id) == "opaque"

    def show(self, event: Event, *, zone_name: str | None = None, alone: bool = True) -> Resource:
        """An event as the viewer sees it.

        Args:
            event: The event.
            zone_name: The zone that times are shown in; the calendar's if None.
            alone: Whether it is shown by itself, in full, and not in a list.
        """
        zone_name = zone_name or self._zone_name
        shown: Resource = {
            "id": event.id,
            "status": event.status,
            "start": in_zone(event.start, zone_name),
            "end": in_zone(event.end, zone_name),
        }
        if event.recurring_event_id is not None:
            shown["recurringEventId"] = event.recurring_event_id
            shown["originalStartTime"] = in_zone(original_start_time(event), zone_name)
        if not sees_details(event, self.calendar_id, self.role, self.user):
            # That it repeats tells when it is, and no more.
            if event.is_series:
                shown["recurrence"] = event.body["recurrence"]
            return {name: shown[name] for name in _ORDER if name in shown} | {"visibility": "private"}
        shown.update({name: value for name, value in event.body.items() if name not in ("start", "end")})
        self._add_people(shown, event)
        shown.update(self._own(event))
        shown.setdefault("reminders", {"useDefault": True})
        stamps = {"created": event.created, "updated": event.updated, "iCalUID": event.ical_uid}
        shown.update(stamps, sequence=event.sequence, etag=f'"{event.revision}"')
        left_out = () if alone else _ONLY_ALONE
        return {name: shown[name] for name in _ORDER if name in shown and name not in left_out}

    def _own(self, event: Event) -> Resource:
        guest = event.guest(self.calendar_id)
        if guest is None or self.calendar_id == event.calendar_id:
            return {}
        # Reminders are each person's: a guest does not get the organizer's.
        own = {"reminders": {"useDefault": True}, **guest.own}
        return {name: own[name] for name in GUEST_OWN if name in own}

    def _add_people(self, shown: Resource, event: Event) -> None:
        shown["organizer"] = self._person(event.calendar_id, event.calendar_id == self.calendar_id)
        shown["creator"] = self._person(event.creator, event.creator == self.calendar_id)
        on_organizers = self.calendar_id == event.calendar_id
        all_guests = on_organizers or event.body.get("guestsCanSeeOtherGuests", True)
        attendees: list[Resource] = []
        for guest in event.guests:
            if not all_guests and guest.email not in (self.calendar_id, self.user, event.calendar_id):
                continue
            entry = {**guest.data, "responseStatus": guest.response}
            name = self._name(guest.email)
            if name:
                entry.setdefault("displayName", name)
            if guest.email == event.calendar_id:
                entry["organizer"] = True
            if guest.email == self.calendar_id:
                entry["self"] = True
            attendees.append(entry)
        if attendees:
            shown["attendees"] = attendees

    def _person(self, email: str, is_self: bool) -> Resource:
        person: Resource = {"email": email}
        name = self._name(email)
        if name:
            person["displayName"] = name
        return {**person, "self": True} if is_self else person

    def _name(self, email: str) -> str:
        if email not in self._names:
            query = (
                "SELECT display_name FROM users WHERE email = ? "
                "UNION ALL SELECT summary FROM calendars WHERE id = ? AND kind != 'primary'"
            )
            row = self.tables.row(query, (email, email))
            self._names[email] = "" if row is None else row[0]
        return self._names[email]


def matches(resource: Resource, words: list[str]) -> bool:
    """Whether what is shown of an event holds each of some words, whatever their letters' size."""
    people = [*resource.get("attendees", []), resource.get("organizer", {})]
    texts = [str(resource.get(name, "")) for name in ("summary", "description", "location")]
    texts += [str(person.get(name, "")) for person in people for name in ("email", "displayName")]
    text = "\n".join(texts).casefold()
    return all(word in text for word in words)
