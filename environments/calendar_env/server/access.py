"""What a user may do on a calendar, and what of an event a viewer may see.

A user has the greatest role that any rule gives: to the user, to a group that the user is in, to the address's domain,
or to everyone. ``freeBusyReader`` sees when a calendar is busy; ``reader`` sees details, except of private events;
``writer`` sees and changes all events; ``owner`` also changes the calendar and who has access.

Source: "Acl" of the Google Calendar API v3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calendar_env.server.errors import needs_role, not_found
from calendar_env.server.records import Event
from calendar_env.server.tables import Row, Tables

ROLES = ("none", "freeBusyReader", "reader", "writer", "owner")
"""From the least to the greatest."""

_RULES = """
SELECT role FROM acl WHERE calendar_id = :calendar AND (
    scope_type = 'default' OR (scope_type = 'user' AND scope_value = :user)
    OR (scope_type = 'domain' AND scope_value = :domain)
    OR (scope_type = 'group' AND scope_value IN (
        SELECT group_email FROM group_members WHERE member_email = :user)))
"""


def at_least(role: str, wanted: str) -> bool:
    """Whether a role is as great as another."""
    return ROLES.index(role) >= ROLES.index(wanted)


def greatest(roles: Iterable[str]) -> str:
    """The greatest of some roles; "none" of none."""
    return max(roles, key=ROLES.index, default="none")


def role_on(tables: Tables, calendar_id: str, user: str) -> str:
    """The role of a user on a calendar; "none" also where there is no such calendar."""
    if tables.row("SELECT 1 FROM calendars WHERE id = ? AND deleted = 0", (calendar_id,)) is None:
        return "none"
    values = {"calendar": calendar_id, "user": user, "domain": user.partition("@")[2]}
    return greatest(row[0] for row in tables.connection.execute(_RULES, values))


def require_role(tables: Tables, calendar_id: str, user: str, wanted: str) -> tuple[Row, str]:
    """The calendar and the user's role on it, where that is great enough.

    Raises:
        CalendarError: There is no such calendar for this user, or the role is too small.
    """
    role = role_on(tables, calendar_id, user)
    if role == "none":
        raise not_found(
            f"calendar '{calendar_id:.80}'",
            "There is none of this id, or you have no access to it. calendarList_list names those on your list.",
        )
    if not at_least(role, wanted):
        raise needs_role(wanted, calendar_id, role)
    return tables.calendar(calendar_id), role


def visibility_on(event: Event, calendar_id: str) -> str:
    """The visibility of an event on a calendar: a guest may have set its own."""
    guest = event.guest(calendar_id)
    own: dict[str, Any] = guest.own if guest is not None and calendar_id != event.calendar_id else {}
    return own.get("visibility") or event.body.get("visibility") or "default"


def sees_details(event: Event, calendar_id: str, role: str, viewer: str) -> bool:
    """Whether a viewer sees more of an event on a calendar than when it is."""
    if viewer == event.calendar_id or event.guest(viewer) is not None or at_least(role, "writer"):
        return True
    return role == "reader" and visibility_on(event, calendar_id) not in ("private", "confidential")
