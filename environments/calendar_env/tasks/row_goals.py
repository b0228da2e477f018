"""Parts of goals about what is no event: sharing, and new calendars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calendar_env.server.access import ROLES
from calendar_env.tasks.goals import as_wanted
from calendar_env.tasks.snapshot import Difference, Row


@dataclass(frozen=True)
class RowIs:
    """A row that shall have a value; None for a row that shall go."""

    name: str
    row: Row
    value: Any

    def reached(self, difference: Difference, message: str) -> float:
        """Whether it has it. Access that is greater than both what was wanted and what was there is not claimed."""
        role = difference.after.rows.get(self.row)
        if not _excessive(role, self.value, difference.before.rows.get(self.row)):
            difference.rows.discard(self.row)
        return float(as_wanted(role, self.value))


def _excessive(role: str | None, wanted: Any, before: str | None = None) -> bool:
    """Whether a role gives more rights than were wanted, or than there were."""
    allowed = [each for each in ROLES if as_wanted(each, wanted)]
    return _rank(role) > max(map(_rank, (*allowed, before)))


def _rank(role: str | None) -> int:
    return 0 if role is None else ROLES.index(role)


@dataclass(frozen=True)
class NewCalendar:
    """A calendar that shall be made, with what is shared of it.

    Attributes:
        name: What it is about.
        fields: The calendar's fields: values or tests.
        shared: The role by rule id, beside the owner's.
        owner: Who makes it.
    """

    name: str
    fields: Mapping[str, Any]
    shared: Mapping[str, str]
    owner: str

    def found(self, difference: Difference) -> str | None:
        """The id of the new calendar of that title."""
        for (table, identifier), row in sorted(difference.after.rows.items(), key=lambda item: item[0]):
            new = table == "calendars" and (table, identifier) not in difference.before.rows
            if new and not row.get("deleted") and as_wanted(row.get("summary"), self.fields["summary"]):
                return identifier
        return None

    def reached(self, difference: Difference, message: str) -> float:
        """How much of fields and rules is right."""
        identifier = self.found(difference)
        if identifier is None:
            return 0.0
        calendar = difference.after.rows["calendars", identifier]
        right = [as_wanted(calendar.get(name), value) for name, value in self.fields.items()]
        mine = {("calendars", identifier), ("calendarList", f"{self.owner} {identifier}")}
        mine |= {("acl", f"{identifier} user:{self.owner}")}
        rules = {
            name[1].removeprefix(f"{identifier} "): value
            for name, value in difference.after.rows.items()
            if name[0] == "acl" and name[1].startswith(f"{identifier} ") and name not in mine
        }
        for rule, role in self.shared.items():
            right.append(rules.get(rule) == role)
            if not _excessive(rules.get(rule), role):
                mine.add(("acl", f"{identifier} {rule}"))
        difference.rows -= mine
        # Who was given access may find the calendar on their list.
        difference.rows -= {row for row in difference.rows if row[0] == "calendarList" and row[1].endswith(identifier)}
        return sum(right) / len(right)
