"""The tables of one session, in an SQLite database in memory: reading, writing, and all or nothing.

They keep what they are given and know no rights. All that they make up (ids, revisions) comes of a seed and of
counters, so that equal calls leave equal databases.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from calendar_env.server.errors import not_found
from calendar_env.server.records import Event, Guest
from calendar_env.server.schema import SCHEMA
from calendar_env.server.times import is_day, seconds_of

Row = sqlite3.Row


class Tables:
    """One company's calendars.

    Args:
        id_seed: What ids that are made up come of.
    """

    def __init__(self, id_seed: str = "") -> None:
        # A session may be served by one thread after another, never by two at once.
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.row_factory = Row
        self.id_seed = id_seed
        self.connection.executescript(SCHEMA)

    def close(self) -> None:
        """Give the memory back. The store cannot be used after that."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is done inside is done, or none of it where it raises. One inside another is part of it."""
        if self.connection.in_transaction:
            yield
            return
        self.connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows that a query finds."""
        return self.connection.execute(query, parameters).fetchall()

    def row(self, query: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row that a query finds."""
        return self.connection.execute(query, parameters).fetchone()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Change something."""
        self.connection.execute(statement, parameters)

    def count_up(self, name: str) -> int:
        """The next number of a counter, "id" or "revision"."""
        self.execute("UPDATE counters SET value = value + 1 WHERE name = ?", (name,))
        return self._counted(name)

    @property
    def revision(self) -> int:
        """The number of the last change of an event."""
        return self._counted("revision")

    def new_id(self) -> str:
        """An id that nothing has yet."""
        while True:
            digest = hashlib.sha256(f"{self.id_seed}:{self.count_up('id')}".encode()).digest()
            # The API's alphabet: letters a to v and digits.
            text = "".join("0123456789abcdefghijklmnopqrstuv"[byte & 31] for byte in digest[:12])
            if self.row("SELECT 1 FROM events WHERE id = ?", (text,)) is None:
                return text

    def calendar(self, calendar_id: str) -> Row:
        """The calendar of that id.

        Raises:
            CalendarError: There is none.
        """
        row = self.row("SELECT * FROM calendars WHERE id = ? AND deleted = 0", (calendar_id,))
        if row is None:
            raise not_found(f"calendar '{calendar_id:.80}'", "calendarList_list names those that there are for you.")
        return row

    def user(self, email: str) -> Row | None:
        """The user of that address."""
        return self.row("SELECT * FROM users WHERE email = ?", (email,))

    def group_members(self, group: str) -> list[str]:
        """The people on a mailing list, in order; none where there is no such list."""
        query = "SELECT member_email FROM group_members WHERE group_email = ? ORDER BY member_email"
        return [row[0] for row in self.rows(query, (group,))]

    def event(self, event_id: str) -> Event | None:
        """The event of that id; not an instance that has no row of its own."""
        row = self.row("SELECT * FROM events WHERE id = ?", (event_id,))
        return None if row is None else self._event(row)

    def all_events(self) -> list[Event]:
        """Every event, in the order of ids."""
        return [self._event(row) for row in self.rows("SELECT * FROM events ORDER BY id")]

    def exceptions(self, series_id: str) -> list[Event]:
        """The instances of a series that have a row of their own, in order."""
        query = "SELECT * FROM events WHERE recurring_event_id = ? ORDER BY original_start"
        return [self._event(row) for row in self.rows(query, (series_id,))]

    def events_on(self, calendar_id: str, after: int | None = None, before: int | None = None) -> list[Event]:
        """Events that are on a calendar: its own, and those that it is a guest of.

        Args:
            calendar_id: The calendar.
            after: Leave out single events with a clock time that end by then (seconds since 1970).
            before: Leave out those that start by then or later.
        """
        query = (
            "SELECT * FROM events WHERE (calendar_id = :id OR id IN "
            "(SELECT event_id FROM attendees WHERE email = :id AND removed = 0))"
            " AND (start_utc IS NULL OR ((:before IS NULL OR start_utc < :before)"
            " AND (:after IS NULL OR end_utc > :after OR (end_utc = start_utc AND end_utc >= :after)))) ORDER BY id"
        )
        found = self.connection.execute(query, {"id": calendar_id, "after": after, "before": before}).fetchall()
        return [self._event(row) for row in found]

    def count_series(self, calendar_id: str) -> int:
        """How many series a calendar has that were not deleted."""
        query = (
            "SELECT COUNT(*) FROM events WHERE calendar_id = ? AND status != 'cancelled'"
            " AND json_type(body, '$.recurrence') = 'array'"
        )
        return self._first(query, (calendar_id,))

    def save_event(self, event: Event) -> None:
        """Write an event and its attendees, in place of what its id had; it gets a new revision."""
        event.revision = self.count_up("revision")
        clock = None if event.is_series or is_day(event.start) else "UTC"
        self.execute(
            "INSERT OR REPLACE INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                event.id,
                event.calendar_id,
                event.ical_uid,
                event.recurring_event_id,
                event.original_start,
                event.status,
                event.created,
                event.updated,
                event.creator,
                event.sequence,
                event.revision,
                seconds_of(event.start, clock) if clock else None,
                seconds_of(event.end, clock) if clock else None,
                json.dumps(event.body, ensure_ascii=False, sort_keys=True),
            ),
        )
        self.execute("DELETE FROM attendees WHERE event_id = ?", (event.id,))
        self.connection.executemany(
            "INSERT INTO attendees VALUES (?,?,?,?,?,?)",
            [
                (event.id, guest.email, position, json.dumps(guest.data, ensure_ascii=False, sort_keys=True),
                 json.dumps(guest.own, sort_keys=True), int(guest.removed))
                for position, guest in enumerate(event.guests)
            ],
        )  # fmt: skip

    def drop_event(self, event_id: str) -> None:
        """Take an event out of the database, as though it had never been there."""
        self.execute("DELETE FROM events WHERE id = ?", (event_id,))
        self.execute("DELETE FROM attendees WHERE event_id = ?", (event_id,))

    def notify(self, kind: str, event_id: str, recipient: str, sent_by: str) -> None:
        """Remember a message that a person was sent about an event."""
        self.execute(
            "INSERT INTO notifications (kind, event_id, recipient, sent_by) VALUES (?,?,?,?)",
            (kind, event_id, recipient, sent_by),
        )

    def _counted(self, name: str) -> int:
        return self._first("SELECT value FROM counters WHERE name = ?", (name,))

    def _first(self, query: str, parameters: Sequence[Any]) -> int:
        row = self.row(query, parameters)
        assert row is not None
        return row[0]

    def _event(self, row: Row) -> Event:
        guests = self.rows(
            "SELECT data, own, removed FROM attendees WHERE event_id = ? ORDER BY position", (row["id"],)
        )
        return Event(
            id=row["id"],
            calendar_id=row["calendar_id"],
            body=json.loads(row["body"]),
            guests=[Guest(json.loads(data), json.loads(own), bool(removed)) for data, own, removed in guests],
            ical_uid=row["ical_uid"],
            recurring_event_id=row["recurring_event_id"],
            original_start=row["original_start"],
            status=row["status"],
            created=row["created"],
            updated=row["updated"],
            creator=row["creator"],
            sequence=row["sequence"],
            revision=row["revision"],
        )
