"""Who has access to a calendar, as its owners see and change it.

Nobody changes the own access, nor that of the person whose calendar it is: there is always an owner.
"""

from __future__ import annotations

from typing import Any

from calendar_env.server.access import ROLES, at_least
from calendar_env.server.context import Arguments, Resource, ServiceContext
from calendar_env.server.errors import forbidden, invalid, not_found, required
from calendar_env.server.event_body import read_address
from calendar_env.server.paging import page
from calendar_env.server.tables import Row

SCOPES = ("user", "group", "domain", "default")


class AclService(ServiceContext):
    """The acting user, working with the access of calendars that the user owns."""

    def acl_list(
        self, calendarId: str, showDeleted: bool = False, maxResults: int | None = None, pageToken: str | None = None
    ) -> Resource:
        """The rules of a calendar."""
        del showDeleted  # a rule that was deleted is not remembered
        calendar, _ = self.require(calendarId, "owner")
        rows = self.store.rows("SELECT * FROM acl WHERE calendar_id = ? ORDER BY rule_id", (calendar["id"],))
        rules, token = page([_rule(row) for row in rows], maxResults, pageToken, usual=100, most=250)
        return {"items": list(rules)} if token is None else {"items": list(rules), "nextPageToken": token}

    def acl_get(self, calendarId: str, ruleId: str) -> Resource:
        """One rule of a calendar."""
        calendar, _ = self.require(calendarId, "owner")
        return _rule(self._rule_row(calendar, ruleId))

    def acl_insert(self, calendarId: str, body: Arguments) -> Resource:
        """Give someone a role on a calendar, in place of the one that the same scope had."""
        calendar, _ = self.require(calendarId, "owner")
        role = _read_role(body.get("role"))
        scope_type, value = self._read_scope(body.get("scope"))
        if scope_type == "default" and at_least(role, "writer"):
            raise invalid("The scope 'default' is everyone in the world: its role is freeBusyReader or reader at most.")
        rule_id = scope_type if scope_type == "default" else f"{scope_type}:{value}"
        self._refuse_own(calendar, rule_id)
        self.store.execute(
            "INSERT OR REPLACE INTO acl VALUES (?,?,?,?,?)", (calendar["id"], rule_id, scope_type, value, role)
        )
        return self.acl_get(calendar["id"], rule_id)

    def acl_patch(self, calendarId: str, ruleId: str, body: Arguments) -> Resource:
        """Change the role that a rule gives."""
        calendar, _ = self.require(calendarId, "owner")
        row = self._rule_row(calendar, ruleId)
        scope = {"type": row["scope_type"], "value": row["scope_value"]}
        given = body.get("scope") or scope
        if {"value": "", **given} != scope:
            raise invalid("A rule's scope cannot be changed. Delete the rule and insert another one.")
        return self.acl_insert(calendar["id"], {"role": body.get("role") or row["role"], "scope": scope})

    def acl_update(self, calendarId: str, ruleId: str, body: Arguments) -> Resource:
        """Replace a rule: its role must be given."""
        if not body.get("role"):
            raise required("role")
        return self.acl_patch(calendarId, ruleId, body)

    def acl_delete(self, calendarId: str, ruleId: str) -> Resource:
        """Take a rule away."""
        calendar, _ = self.require(calendarId, "owner")
        row = self._rule_row(calendar, ruleId)
        self._refuse_own(calendar, row["rule_id"])
        statement = "DELETE FROM acl WHERE calendar_id = ? AND rule_id = ?"
        self.store.execute(statement, (calendar["id"], row["rule_id"]))
        return {}

    def _rule_row(self, calendar: Row, rule_id: str) -> Row:
        query = "SELECT * FROM acl WHERE calendar_id = ? AND rule_id = ?"
        row = self.store.row(query, (calendar["id"], rule_id.strip()))
        if row is None:
            raise not_found(
                f"rule '{rule_id:.80}' of '{calendar['id']}'", "acl_list names them, such as user:ann@acme.example."
            )
        return row

    def _refuse_own(self, calendar: Row, rule_id: str) -> None:
        if rule_id == f"user:{self.acting_user}":
            raise forbidden("Cannot change your own access level.", "cannotChangeOwnAcl")
        if rule_id == f"user:{calendar['owner']}":
            raise forbidden(
                f"Cannot change the access level of the calendar's owner, {calendar['owner']}.", "cannotChangeOwnerAcl"
            )

    def _read_scope(self, scope: Any) -> tuple[str, str]:
        kind = scope.get("type") if isinstance(scope, dict) else None
        if kind not in SCOPES:
            raise invalid(f"scope must be {{'type': ..., 'value': ...}} with type one of {', '.join(SCOPES)}.")
        value = scope.get("value") or ""
        if kind == "default":
            if value:
                raise invalid("The scope 'default' has no value.")
        elif kind == "domain":
            if not isinstance(value, str) or "@" in value or "." not in value:
                raise invalid(f"The value of a scope 'domain' is a domain such as acme.example, not {value!r:.60}.")
            value = value.strip().lower()
        else:
            value = read_address("scope.value", value)
            if kind == "group" and not self.store.group_members(value):
                raise invalid(f"There is no group '{value}'. groups_list names them; a person is a scope 'user'.")
        return str(kind), value


def _rule(row: Row) -> Resource:
    scope = {"type": row["scope_type"], **({"value": row["scope_value"]} if row["scope_value"] else {})}
    return {"id": row["rule_id"], "scope": scope, "role": row["role"]}


def _read_role(role: Any) -> str:
    if role is None:
        raise required("role")
    if role not in ROLES:
        raise invalid(f"role must be one of {', '.join(ROLES)}, not {role!r:.40}.")
    return str(role)
