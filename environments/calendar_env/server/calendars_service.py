"""Calendars and the acting user's list of them, as the API has them."""

from __future__ import annotations

import json
from typing import Any

from calendar_env.server.access import ROLES, at_least, role_on
from calendar_env.server.context import Arguments, Resource
from calendar_env.server.errors import forbidden, invalid, not_found, required
from calendar_env.server.event_body import read_reminder_list
from calendar_env.server.event_changes import EventChanges
from calendar_env.server.paging import page
from calendar_env.server.palette import CALENDAR_COLORS
from calendar_env.server.tables import Row
from calendar_env.server.times import require_time_zone

_TEXTS = {"summary": 256, "description": 4096, "location": 256}
_COLUMNS = {"summary": "summary", "description": "description", "location": "location", "timeZone": "time_zone"}
_SWITCHES = ("hidden", "selected")


class CalendarsService(EventChanges):
    """The acting user, working with whole calendars."""

    def calendars_get(self, calendarId: str) -> Resource:
        """A calendar's name, description, location and time zone."""
        return _calendar(self.require(calendarId, "freeBusyReader")[0])

    def calendars_insert(self, body: Arguments) -> Resource:
        """Create a secondary calendar, which the acting user owns."""
        fields = _read_calendar(body)
        if not fields.get("summary"):
            raise required("summary, the calendar's name")
        user = self.store.user(self.acting_user)
        zone_name = fields.get("timeZone") or (user["time_zone"] if user is not None else "UTC")
        with self.store.transaction():
            calendar_id = f"c_{self.store.new_id()}@group.calendar.example"
            texts = [fields.get(name, "") for name in _TEXTS]
            self.store.execute(
                "INSERT INTO calendars VALUES (?, 'secondary', ?, ?, ?, ?, ?, NULL, '[]', 0)",
                (calendar_id, self.acting_user, *texts, zone_name),
            )
            self.store.execute(
                "INSERT INTO acl VALUES (?, ?, 'user', ?, 'owner')",
                (calendar_id, f"user:{self.acting_user}", self.acting_user),
            )
            self._list(calendar_id)
        return self.calendars_get(calendar_id)

    def calendars_patch(self, calendarId: str, body: Arguments) -> Resource:
        """Change some of a calendar's fields."""
        calendar, _ = self.require(calendarId, "owner")
        fields = _read_calendar(body)
        if fields.get("summary") == "":
            raise invalid("summary, the calendar's name, cannot be empty.")
        with self.store.transaction():
            for name, value in fields.items():
                self.store.execute(f"UPDATE calendars SET {_COLUMNS[name]} = ? WHERE id = ?", (value, calendar["id"]))
        return self.calendars_get(calendar["id"])

    def calendars_update(self, calendarId: str, body: Arguments) -> Resource:
        """Replace a calendar's fields. What is not given is cleared; the time zone stays."""
        if not body.get("summary"):
            raise required("summary (calendars_update replaces all fields; calendars_patch changes some)")
        return self.calendars_patch(calendarId, {"description": "", "location": "", **body})

    def calendars_delete(self, calendarId: str) -> Resource:
        """Delete a secondary calendar with its events."""
        calendar, _ = self.require(calendarId, "owner")
        if calendar["kind"] == "primary":
            raise invalid("A primary calendar cannot be deleted. calendars_clear deletes all its events.")
        if calendar["kind"] == "room":
            raise forbidden("Rooms cannot be deleted here.")
        with self.store.transaction():
            self._clear(calendar["id"])
            self.store.execute("UPDATE calendars SET deleted = 1 WHERE id = ?", (calendar["id"],))
            self.store.execute("DELETE FROM calendar_list WHERE calendar_id = ?", (calendar["id"],))
        return {}

    def calendars_clear(self, calendarId: str) -> Resource:
        """Delete all events of a primary calendar."""
        calendar, _ = self.require(calendarId, "owner")
        if calendar["kind"] != "primary":
            raise invalid("Only a primary calendar can be cleared. calendars_delete deletes a secondary one.")
        with self.store.transaction():
            self._clear(calendar["id"])
        return {}

    def calendarList_list(
        self,
        minAccessRole: str | None = None,
        showHidden: bool = False,
        showDeleted: bool = False,
        maxResults: int | None = None,
        pageToken: str | None = None,
    ) -> Resource:
        """The calendars on the acting user's list."""
        del showDeleted  # what was taken off the list is not remembered
        if minAccessRole is not None and minAccessRole not in ROLES[1:]:
            raise invalid(f"minAccessRole must be one of {', '.join(ROLES[1:])}, not {minAccessRole!r:.40}.")
        query = "SELECT * FROM calendar_list WHERE user_email = ? ORDER BY calendar_id != ?, calendar_id"
        entries: list[Resource] = []
        for row in self.store.rows(query, (self.acting_user, self.acting_user)):
            role = role_on(self.store, row["calendar_id"], self.acting_user)
            if at_least(role, minAccessRole or "freeBusyReader") and (showHidden or not row["hidden"]):
                entries.append(self._entry(row, role))
        items, token = page(entries, maxResults, pageToken, usual=100, most=250)
        return {"items": list(items)} if token is None else {"items": list(items), "nextPageToken": token}

    def calendarList_get(self, calendarId: str) -> Resource:
        """One entry of the acting user's list."""
        calendar, role = self.require(calendarId, "freeBusyReader")
        return self._entry(self._listed(calendar["id"]), role)

    def calendarList_insert(self, body: Arguments) -> Resource:
        """Put a calendar on the acting user's list."""
        if not body.get("id"):
            raise required("id, the calendar's")
        calendar, _ = self.require(str(body["id"]), "freeBusyReader")
        fields = _read_entry({name: value for name, value in body.items() if name != "id"})
        with self.store.transaction():
            self._list(calendar["id"])
            self._set_entry(calendar["id"], fields)
        return self.calendarList_get(calendar["id"])

    def calendarList_patch(self, calendarId: str, body: Arguments) -> Resource:
        """Change how a calendar is shown on the acting user's list."""
        calendar, _ = self.require(calendarId, "freeBusyReader")
        self._listed(calendar["id"])
        with self.store.transaction():
            self._set_entry(calendar["id"], _read_entry(body))
        return self.calendarList_get(calendar["id"])

    def calendarList_update(self, calendarId: str, body: Arguments) -> Resource:
        """Replace how a calendar is shown on the acting user's list. What is not given is cleared."""
        usual = {"summaryOverride": None, "colorId": None, "hidden": False, "selected": True, "defaultReminders": []}
        return self.calendarList_patch(calendarId, {**usual, **body})

    def calendarList_delete(self, calendarId: str) -> Resource:
        """Take a calendar off the acting user's list. The calendar stays."""
        calendar, _ = self.require(calendarId, "freeBusyReader")
        self._listed(calendar["id"])
        if calendar["id"] == self.acting_user:
            raise invalid("Your primary calendar cannot be taken off your list.")
        statement = "DELETE FROM calendar_list WHERE user_email = ? AND calendar_id = ?"
        self.store.execute(statement, (self.acting_user, calendar["id"]))
        return {}

    def _clear(self, calendar_id: str) -> None:
        for event in self.store.events_on(calendar_id):
            if event.status != "cancelled" and self.store.event(event.id) is not None:
                self.cancel_event(event, calendar_id, "none")

    def _list(self, calendar_id: str) -> None:
        statement = "INSERT OR IGNORE INTO calendar_list VALUES (?, ?, NULL, NULL, 0, 1, '[]')"
        self.store.execute(statement, (self.acting_user, calendar_id))

    def _listed(self, calendar_id: str) -> Row:
        query = "SELECT * FROM calendar_list WHERE user_email = ? AND calendar_id = ?"
        row = self.store.row(query, (self.acting_user, calendar_id))
        if row is None:
            raise not_found(f"calendar '{calendar_id}' on your list", "calendarList_insert puts it there.")
        return row

    def _set_entry(self, calendar_id: str, fields: dict[str, Any]) -> None:
        for column, value in fields.items():
            statement = f"UPDATE calendar_list SET {column} = ? WHERE user_email = ? AND calendar_id = ?"
            self.store.execute(statement, (value, self.acting_user, calendar_id))

    def _entry(self, row: Row, role: str) -> Resource:
        calendar = self.store.calendar(row["calendar_id"])
        entry = _calendar(calendar)
        if row["summary_override"]:
            entry["summaryOverride"] = row["summary_override"]
        if row["color_id"]:
            entry["colorId"] = row["color_id"]
        entry["accessRole"] = role
        if calendar["id"] == self.acting_user:
            entry["primary"] = True
        if row["hidden"]:
            entry["hidden"] = True
        entry["selected"] = bool(row["selected"])
        reminders = json.loads(row["default_reminders"])
        return {**entry, "defaultReminders": reminders} if reminders else entry


def _calendar(row: Row) -> Resource:
    texts = {name: row[name] for name in ("description", "location") if row[name]}
    return {"id": row["id"], "summary": row["summary"], **texts, "timeZone": row["time_zone"]}


def _read_calendar(body: Arguments) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in body.items():
        if name in ("kind", "etag", "id", "conferenceProperties"):
            continue
        if name == "timeZone":
            fields[name] = require_time_zone(name, value)
        elif name not in _TEXTS:
            raise invalid(f"Unknown field '{name:.60}' of a calendar. Fields are: {', '.join(_COLUMNS)}.")
        elif not isinstance(value, str) or len(value) > _TEXTS[name]:
            raise invalid(f"{name} must be text of at most {_TEXTS[name]} characters.")
        else:
            fields[name] = value.strip()
    return fields


def _read_entry(body: Arguments) -> dict[str, Any]:
    """The columns that a list entry's fields stand for."""
    columns: dict[str, Any] = {}
    for name, value in body.items():
        if name == "summaryOverride":
            columns["summary_override"] = None if value is None else str(value)[:256]
        elif name == "colorId":
            if value is not None and value not in CALENDAR_COLORS:
                raise invalid("colorId of a calendar must be '1' to '24'; colors_get shows them.")
            columns["color_id"] = value
        elif name in _SWITCHES:
            columns[name] = int(bool(value))
        elif name == "defaultReminders":
            columns["default_reminders"] = json.dumps(read_reminder_list(name, value or []))
        elif name not in ("kind", "etag", "summary", "description", "location", "timeZone", "accessRole", "primary"):
            raise invalid(f"Unknown field '{name:.60}' of a calendar list entry.")
    return columns
