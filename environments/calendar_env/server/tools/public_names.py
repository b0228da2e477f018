"""The tools' names in the public OpenEnv package's calendar environment, for what was written for it.

Its five tools that watch or import (``watch_events``, ``watch_calendar_list``, ``watch_acl``, ``watch_settings``,
``import_event``) have nothing to act on here.

Source: ``calendar_env`` of the OpenEnv package, version 0.10.0.
"""

from __future__ import annotations

from typing import Any

PUBLIC_NAMES = {
    "list_events": "events_list",
    "get_event": "events_get",
    "create_event": "events_insert",
    "update_event": "events_update",
    "patch_event": "events_patch",
    "delete_event": "events_delete",
    "move_event": "events_move",
    "quick_add_event": "events_quickAdd",
    "get_event_instances": "events_instances",
    "create_calendar": "calendars_insert",
    "get_calendar": "calendars_get",
    "update_calendar": "calendars_update",
    "patch_calendar": "calendars_patch",
    "delete_calendar": "calendars_delete",
    "clear_calendar": "calendars_clear",
    "get_calendar_list": "calendarList_list",
    "get_calendar_from_list": "calendarList_get",
    "add_calendar_to_list": "calendarList_insert",
    "update_calendar_in_list": "calendarList_patch",
    "replace_calendar_in_list": "calendarList_update",
    "remove_calendar_from_list": "calendarList_delete",
    "list_acl_rules": "acl_list",
    "get_acl_rule": "acl_get",
    "insert_acl_rule": "acl_insert",
    "update_acl_rule": "acl_update",
    "patch_acl_rule": "acl_patch",
    "delete_acl_rule": "acl_delete",
    "list_settings": "settings_list",
    "get_settings": "settings_get",
    "get_colors": "colors_get",
    "query_freebusy": "freebusy_query",
    "get_user_by_email": "users_get",
}
"""Our names by theirs."""


def own_call(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A call by our names; one that has them already stays as it is.

    Args:
        name: The tool's name, theirs or ours.
        arguments: The arguments, where theirs may have the resource as ``body``.
    """
    given = dict(arguments)
    body = given.get("body")
    if isinstance(body, dict):
        del given["body"]
        given = {**body, **given}
    if name == "get_user_by_email" and "email" in given:
        given["userKey"] = given.pop("email")
    return PUBLIC_NAMES.get(name, name), given
