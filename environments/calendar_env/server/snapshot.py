"""What a database holds as plain values in one order: how two of them are compared.

Left out is what no one means to change: revisions, etags and times of change. The messages that people were sent are
in it, in their order.
"""

from __future__ import annotations

import json
from typing import Any

from calendar_env.server.records import Event
from calendar_env.server.recurrence import instance_start, suffix_instance
from calendar_env.server.tables import Tables


def snapshot(tables: Tables) -> dict[str, Any]:
    """The whole content of the tables."""
    return {
        "users": {row["email"]: _user(row) for row in tables.rows("SELECT * FROM users ORDER BY email")},
        "groups": {
            row["email"]: tables.group_members(row["email"])
            for row in tables.rows("SELECT * FROM groups ORDER BY email")
        },
        "calendars": {row["id"]: _calendar(row) for row in tables.rows("SELECT * FROM calendars ORDER BY id")},
        "calendarList": {
            f"{row['user_email']} {row['calendar_id']}": _list_entry(row)
            for row in tables.rows("SELECT * FROM calendar_list ORDER BY user_email, calendar_id")
        },
        "acl": {
            f"{row['calendar_id']} {row['rule_id']}": row["role"]
            for row in tables.rows("SELECT * FROM acl ORDER BY calendar_id, rule_id")
        },
        "settings": {
            f"{row['user_email']} {row['id']}": row["value"]
            for row in tables.rows("SELECT * FROM settings ORDER BY user_email, id")
        },
        "events": {event.id: event_snapshot(event) for event in tables.all_events()},
        "notifications": [
            {"kind": row["kind"], "eventId": row["event_id"], "recipient": row["recipient"], "sentBy": row["sent_by"]}
            for row in tables.rows("SELECT * FROM notifications ORDER BY seq")
        ],
    }


def event_snapshot(event: Event) -> dict[str, Any]:
    """One event in the API's shape, with all attendees and what each has for itself."""
    shown: dict[str, Any] = {"id": event.id, "calendarId": event.calendar_id, "status": event.status, **event.body}
    shown["creator"] = event.creator
    if event.recurring_event_id is not None:
        shown["recurringEventId"] = event.recurring_event_id
        shown["originalStartTime"] = original_start_time(event)
    shown["attendees"] = [
        {**guest.data, **({"own": guest.own} if guest.own else {}), **({"removed": True} if guest.removed else {})}
        for guest in sorted(event.guests, key=lambda guest: guest.email)
    ]
    return {name: value for name, value in shown.items() if value not in ([], None)}


def original_start_time(event: Event) -> dict[str, str]:
    """When an instance starts by its series."""
    assert event.original_start is not None
    day = len(event.original_start) == 8
    zone_name = event.start.get("timeZone", "UTC")
    like = {"date": ""} if day else {"dateTime": "", "timeZone": zone_name}
    instance = suffix_instance(event.original_start, like)
    assert instance is not None
    return instance_start(instance, like)


def _user(row: Any) -> dict[str, Any]:
    return {
        "displayName": row["display_name"],
        "role": row["role"],
        "title": row["title"],
        "timeZone": row["time_zone"],
        "workingHours": json.loads(row["working_hours"]),
        "manager": row["manager"],
    }


def _calendar(row: Any) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "owner": row["owner"],
        "summary": row["summary"],
        "description": row["description"],
        "location": row["location"],
        "timeZone": row["time_zone"],
        "capacity": row["capacity"],
        "features": json.loads(row["features"]),
        "deleted": bool(row["deleted"]),
    }


def _list_entry(row: Any) -> dict[str, Any]:
    return {
        "summaryOverride": row["summary_override"],
        "colorId": row["color_id"],
        "hidden": bool(row["hidden"]),
        "selected": bool(row["selected"]),
        "defaultReminders": json.loads(row["default_reminders"]),
    }
