"""The company's directory, the acting user's settings, and the colours that there are.

The directory is open to everyone in the company: who there is, when they work and where, which mailing lists and rooms
there are. It tells nothing of what is on their calendars.
"""

from __future__ import annotations

import json

from calendar_env.server.context import Resource, ServiceContext
from calendar_env.server.errors import not_found
from calendar_env.server.paging import page
from calendar_env.server.palette import palette
from calendar_env.server.tables import Row


class DirectoryService(ServiceContext):
    """The acting user, looking things up."""

    def users_list(
        self,
        query: str | None = None,
        role: str | None = None,
        maxResults: int | None = None,
        pageToken: str | None = None,
    ) -> Resource:
        """The people of the company, by name."""
        rows = self.store.rows("SELECT * FROM users ORDER BY display_name, email")
        words = (query or "").casefold().split()
        kept = [
            _user(row)
            for row in rows
            if (role is None or row["role"] == role)
            and all(word in f"{row['email']} {row['display_name']} {row['title']}".casefold() for word in words)
        ]
        users, token = page(kept, maxResults, pageToken, usual=100, most=500)
        return {"users": list(users)} if token is None else {"users": list(users), "nextPageToken": token}

    def users_get(self, userKey: str) -> Resource:
        """One person, by address; "me" is the acting user."""
        row = self.store.user(self.acting_user if userKey.strip() in ("me", "primary") else userKey.strip().lower())
        if row is None:
            raise not_found(f"user '{userKey:.80}'", "users_list finds people by name.")
        return _user(row)

    def groups_list(self) -> Resource:
        """The mailing lists, with their members."""
        rows = self.store.rows("SELECT * FROM groups ORDER BY email")
        return {
            "groups": [
                {"email": row["email"], "name": row["display_name"], "members": self.store.group_members(row["email"])}
                for row in rows
            ]
        }

    def rooms_list(self, minCapacity: int | None = None, query: str | None = None) -> Resource:
        """The rooms, by name. A room is booked by inviting its e-mail address."""
        rows = self.store.rows("SELECT * FROM calendars WHERE kind = 'room' AND deleted = 0 ORDER BY summary, id")
        words = (query or "").casefold().split()
        rooms = [_room(row) for row in rows if row["capacity"] >= (minCapacity or 0)]
        return {"rooms": [room for room in rooms if all(word in json.dumps(room).casefold() for word in words)]}

    def settings_list(self, maxResults: int | None = None, pageToken: str | None = None) -> Resource:
        """The acting user's settings."""
        rows = self.store.rows("SELECT * FROM settings WHERE user_email = ? ORDER BY id", (self.acting_user,))
        items, token = page([_setting(row) for row in rows], maxResults, pageToken, usual=100, most=250)
        return {"items": list(items)} if token is None else {"items": list(items), "nextPageToken": token}

    def settings_get(self, setting: str) -> Resource:
        """One of the acting user's settings."""
        row = self.store.row(
            "SELECT * FROM settings WHERE user_email = ? AND id = ?", (self.acting_user, setting.strip())
        )
        if row is None:
            raise not_found(f"setting '{setting:.60}'", "settings_list names them.")
        return _setting(row)

    def colors_get(self) -> Resource:
        """The colours of calendars and events, by ``colorId``."""
        return dict(palette())


def _setting(row: Row) -> Resource:
    return {"id": row["id"], "value": row["value"]}


def _user(row: Row) -> Resource:
    user: Resource = {"primaryEmail": row["email"], "name": row["display_name"], "role": row["role"]}
    user.update({name: row[name] for name in ("title", "manager") if row[name]})
    return {**user, "timeZone": row["time_zone"], "workingHours": json.loads(row["working_hours"])}


def _room(row: Row) -> Resource:
    room: Resource = {"resourceEmail": row["id"], "resourceName": row["summary"], "capacity": row["capacity"]}
    if row["location"]:
        room["location"] = row["location"]
    features = json.loads(row["features"])
    return {**room, "features": features, "timeZone": row["time_zone"]}
