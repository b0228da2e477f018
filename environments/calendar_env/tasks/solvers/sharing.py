"""The solver of requests to share calendars."""

from __future__ import annotations

from typing import Any

from calendar_env.tasks.solvers.desk import Desk


def share_calendar(spec: dict[str, Any], desk: Desk) -> str:
    """Compare the rules that there are with those that there shall be."""
    calendar = "primary" if not spec["audit"] else desk.calendar(spec["calendar_title"])
    rules = {each["id"]: each["role"] for each in desk.all_pages("acl_list", calendarId=calendar)}
    wanted = {f"user:{desk.address(name)}": role for name, role in spec["changes"]}
    if spec["audit"]:
        wanted[f"group:{spec['group']}"] = "reader"
        wanted |= {rule: None for rule in rules if rule not in wanted and rule != f"user:{desk.user}"}
    for rule, role in wanted.items():
        kind, _, value = rule.partition(":")
        if role is None:
            desk.call("acl_delete", calendarId=calendar, ruleId=rule)
        elif rules.get(rule) != role:
            desk.call("acl_insert", calendarId=calendar, role=role, scope={"type": kind, "value": value})
    return "The sharing is as you want it."
