"""Events, as the API reads them: get, list and instances; and freeBusy, which tells only when calendars are busy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from calendar_env.server.access import at_least, role_on
from calendar_env.server.agenda import Budget, Window, busy_spans, find_event, holds_event, instances_of, occurrences
from calendar_env.server.context import Arguments, Resource, ServiceContext
from calendar_env.server.errors import CalendarError, invalid, not_found
from calendar_env.server.paging import page
from calendar_env.server.records import Event
from calendar_env.server.recurrence import instance_suffix
from calendar_env.server.times import UTC, clock_time, read_instant, read_time, require_time_zone, seconds_of
from calendar_env.server.views import matches

_YEARS_AHEAD = 2
_MOST_CALENDARS = 50
_LONGEST_ID = 255
_LONGEST_SEARCH = 1000


class EventReading(ServiceContext):
    """The acting user, reading events."""

    def events_get(self, calendarId: str, eventId: str, timeZone: str | None = None) -> Resource:
        """One event, or one instance of a series, in full."""
        calendar, role = self.require(calendarId, "freeBusyReader")
        event = find_event(self.store, eventId.strip())
        viewer = self.viewer(calendar["id"], role)
        on_calendar = event is not None and (
            event.calendar_id == calendar["id"] or event.guest(calendar["id"]) is not None
        )
        if event is None or not on_calendar or not viewer.sees(event):
            raise not_found(
                f"event '{eventId:.80}' on the calendar '{calendar['id']}'",
                "events_list names the events of a calendar.",
            )
        return viewer.show(_as_on(event, calendar["id"]), zone_name=self._zone(timeZone))

    def events_list(
        self,
        calendarId: str,
        timeMin: str | None = None,
        timeMax: str | None = None,
        q: str | None = None,
        singleEvents: bool = False,
        orderBy: str | None = None,
        showDeleted: bool = False,
        maxResults: int | None = None,
        pageToken: str | None = None,
        timeZone: str | None = None,
        updatedMin: str | None = None,
        iCalUID: str | None = None,
        eventTypes: Sequence[str] | None = None,
        syncToken: str | None = None,
    ) -> Resource:
        """Events of a calendar: series once each, or with ``singleEvents`` their instances."""
        calendar, role = self.require(calendarId, "freeBusyReader")
        zone_name = self._zone(timeZone)
        if orderBy not in (None, "startTime", "updated"):
            raise invalid(f"orderBy must be startTime or updated, not {orderBy!r:.40}.")
        if orderBy == "startTime" and not singleEvents:
            raise invalid("The requested ordering is not available: orderBy=startTime needs singleEvents=true.")
        window = self._window(timeMin, timeMax)
        if syncToken is not None and (window != Window() or q or orderBy or updatedMin or iCalUID):
            raise invalid("syncToken cannot be used with timeMin, timeMax, q, orderBy, updatedMin or iCalUID.")
        since = self._sync_revision(syncToken)
        found = self._found(calendar, window, singleEvents, showDeleted or since is not None)
        viewer = self.viewer(calendar["id"], role)
        if q is not None and len(q) > _LONGEST_SEARCH:
            raise invalid(f"q must be text of at most {_LONGEST_SEARCH} characters.")
        words = (q or "").casefold().split()
        kept: list[Event] = []
        for event in found:
            if not viewer.sees(event) or (since is not None and event.revision <= since):
                continue
            if updatedMin is not None and event.updated < self._stamp_of(updatedMin):
                continue
            if eventTypes and event.body.get("eventType", "default") not in eventTypes:
                continue
            if iCalUID is not None and event.ical_uid != iCalUID:
                continue
            # What the viewer does not see cannot be searched for either.
            if words and not matches(viewer.show(event), words):
                continue
            kept.append(event)
        day_zone = calendar["time_zone"]
        if orderBy == "updated":
            kept.sort(key=lambda event: (event.updated, event.revision))
        else:
            kept.sort(key=lambda event: (seconds_of(event.start, day_zone), event.id))
        events, token = page(kept, maxResults, pageToken, usual=250, most=2500)
        listed: Resource = {
            "summary": calendar["summary"],
            "timeZone": zone_name or calendar["time_zone"],
            "accessRole": role,
            "items": [viewer.show(event, zone_name=zone_name, alone=False) for event in events],
        }
        if token is not None:
            listed["nextPageToken"] = token
        elif not (q or orderBy or updatedMin or iCalUID or eventTypes) and window == Window():
            listed["nextSyncToken"] = f"sync-{self.store.revision}"
        return listed

    def events_instances(
        self,
        calendarId: str,
        eventId: str,
        timeMin: str | None = None,
        timeMax: str | None = None,
        originalStart: str | None = None,
        showDeleted: bool = False,
        maxResults: int | None = None,
        pageToken: str | None = None,
        timeZone: str | None = None,
    ) -> Resource:
        """The instances of a series."""
        calendar, role = self.require(calendarId, "freeBusyReader")
        zone_name = self._zone(timeZone)
        viewer = self.viewer(calendar["id"], role)
        parent = self.store.event(eventId.strip())
        seen = parent is not None and (parent.calendar_id == calendar["id"] or parent.guest(calendar["id"]) is not None)
        if parent is None or not seen or not viewer.sees(parent):
            raise not_found(f"event '{eventId:.80}' on the calendar '{calendar['id']}'")
        if not parent.is_series:
            series_id = parent.recurring_event_id
            hint = f" It is one instance of '{series_id}'." if series_id else ""
            raise invalid(f"'{eventId:.80}' is no series: it has no recurrence.{hint}")
        day_zone = calendar["time_zone"]
        window = self._ahead(self._window(timeMin, timeMax), parent, day_zone)
        wanted = None
        if originalStart is not None:
            key = "dateTime" if "T" in originalStart else "date"
            given = read_time("originalStart", {key: originalStart}, parent.start.get("timeZone", day_zone))
            wanted = instance_suffix(given)
        found = [] if parent.status == "cancelled" else instances_of(
            self.store, parent, window, day_zone, calendar_id=calendar["id"]
        )  # fmt: skip
        kept = [
            event
            for event in found
            if (showDeleted or event.status != "cancelled")
            and wanted in (None, event.original_start)
            and viewer.sees(event)
        ]
        kept.sort(key=lambda event: (seconds_of(event.start, day_zone), event.id))
        events, token = page(kept, maxResults, pageToken, usual=250, most=2500)
        listed: Resource = {
            "timeZone": zone_name or day_zone,
            "accessRole": role,
            "items": [viewer.show(event, zone_name=zone_name, alone=False) for event in events],
        }
        return listed if token is None else {**listed, "nextPageToken": token}

    def freebusy_query(
        self,
        timeMin: str,
        timeMax: str,
        items: Sequence[Arguments],
        timeZone: str | None = None,
        groupExpansionMax: int | None = None,
        calendarExpansionMax: int | None = None,
    ) -> Resource:
        """When calendars are busy, also those of the people on a mailing list."""
        window = self._window(timeMin, timeMax)
        zone_name = require_time_zone("timeZone", timeZone or "UTC")
        groups: Resource = {}
        calendars: list[str] = []
        if len(items) > _MOST_CALENDARS:
            raise _too_many()
        budget = Budget()
        for item in items:
            given = self.calendar_id(str(item.get("id", "")))
            if len(given) > _LONGEST_ID:
                raise invalid(f"items: the id of a calendar has at most {_LONGEST_ID} characters.")
            members = self.store.group_members(given)
            if members:
                if len(members) > (groupExpansionMax or 100):
                    groups[given] = {"errors": [{"domain": "global", "reason": "groupTooBig"}]}
                    continue
                groups[given] = {"calendars": members}
            calendars += [name for name in members or [given] if name not in calendars]
        if len(calendars) > min(calendarExpansionMax or _MOST_CALENDARS, _MOST_CALENDARS):
            raise _too_many()
        assert window.after is not None
        assert window.before is not None
        answer: Resource = {
            "timeMin": timeMin,
            "timeMax": timeMax,
            "calendars": {name: self._busy(name, window, zone_name, budget) for name in calendars},
        }
        return {**answer, "groups": groups} if groups else answer

    def _busy(self, calendar_id: str, window: Window, zone_name: str, budget: Budget) -> Resource:
        if not at_least(role_on(self.store, calendar_id, self.acting_user), "freeBusyReader"):
            return {"errors": [{"domain": "global", "reason": "notFound"}], "busy": []}
        day_zone = self.store.calendar(calendar_id)["time_zone"]
        spans = busy_spans(self.store, calendar_id, window, day_zone, budget=budget)
        return {"busy": [{"start": _clock(start, zone_name), "end": _clock(end, zone_name)} for start, end in spans]}

    def _found(self, calendar: Any, window: Window, single: bool, deleted: bool) -> list[Event]:
        calendar_id, day_zone = calendar["id"], calendar["time_zone"]
        if single:
            bounded = window if window.before is not None else self._ahead(window, None, day_zone)
            found = occurrences(self.store, calendar_id, bounded, day_zone, Budget())
            return [event for event in found if deleted or event.status != "cancelled"]
        kept: list[Event] = []
        for event in self.store.events_on(calendar_id, window.after, window.before):
            # A cancelled instance tells that its series has a gap, and is listed without being asked for.
            if event.status == "cancelled" and not deleted and event.recurring_event_id is None:
                continue
            if event.is_series and window != Window():
                instances = instances_of(self.store, event, self._ahead(window, event, day_zone), day_zone)
                if next((instance for instance in instances if instance.status != "cancelled"), None) is None:
                    continue
            elif not event.is_series and not holds_event(window, event, day_zone):
                continue
            kept.append(event)
        if deleted:
            kept += self._taken_off(calendar_id, window, day_zone)
        return kept

    def _taken_off(self, calendar_id: str, window: Window, day_zone: str) -> list[Event]:
        query = "SELECT event_id FROM attendees WHERE email = ? AND removed = 1 ORDER BY event_id"
        events = [self.store.event(row[0]) for row in self.store.rows(query, (calendar_id,))]
        gone = [
            _as_on(event, calendar_id) for event in events if event is not None and event.calendar_id != calendar_id
        ]
        return [event for event in gone if event.is_series or holds_event(window, event, day_zone)]

    def _ahead(self, window: Window, parent: Event | None, day_zone: str) -> Window:
        """The window, with an end where it has none: some years from now, or from its own start."""
        if window.before is not None:
            return window
        first = max(int(self.now.timestamp()), window.after or 0)
        if parent is not None:
            first = max(first, seconds_of(parent.start, day_zone))
        return Window(window.after, first + _YEARS_AHEAD * 366 * 86400)

    def _window(self, time_min: str | None, time_max: str | None) -> Window:
        after = None if time_min is None else int(read_instant("timeMin", time_min).timestamp())
        before = None if time_max is None else int(read_instant("timeMax", time_max).timestamp())
        if after is not None and before is not None and before <= after:
            raise invalid("The specified time range is empty: timeMax must be later than timeMin.", "timeRangeEmpty")
        return Window(after, before)

    def _zone(self, given: str | None) -> str | None:
        return None if given is None else require_time_zone("timeZone", given)

    def _stamp_of(self, given: str) -> str:
        return clock_time(read_instant("updatedMin", given), "UTC")["dateTime"].replace("+00:00", "Z")

    def _sync_revision(self, token: str | None) -> int | None:
        if token is None:
            return None
        word, _, number = token.partition("-")
        if word != "sync" or not number.isdecimal() or int(number) > self.store.revision:
            raise CalendarError(410, "fullSyncRequired", "Sync token is no longer valid. List again without syncToken.")
        return int(number)


def _as_on(event: Event, calendar_id: str) -> Event:
    """The event as it stands on a calendar: cancelled for a guest who took it off."""
    guest = event.guest(calendar_id)
    if guest is None or not guest.removed or event.calendar_id == calendar_id:
        return event
    gone = event.copy()
    gone.status = "cancelled"
    return gone


def _too_many() -> CalendarError:
    return CalendarError(400, "tooManyCalendarsRequested", f"At most {_MOST_CALENDARS} calendars can be asked for.")


def _clock(seconds: int, zone_name: str) -> str:
    return clock_time(datetime.fromtimestamp(seconds, UTC), zone_name)["dateTime"].replace("+00:00", "Z")
