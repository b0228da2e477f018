"""The calendar API: one method for each of its tools, with the rights of one user, at one moment.

A method takes the API's path and query parameters by their names and a resource as ``body``, and returns a resource;
what it refuses is a `CalendarError`, and nothing has changed then. `CalendarService.call` takes arguments as agents
give them: the body's fields beside the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from calendar_env.server.acl_service import AclService
from calendar_env.server.calendars_service import CalendarsService
from calendar_env.server.context import Resource
from calendar_env.server.directory_service import DirectoryService
from calendar_env.server.errors import invalid, required
from calendar_env.server.event_reading import EventReading
from calendar_env.server.event_service import EventService

_PREFIXES = (
    "calendars_",
    "calendarList_",
    "events_",
    "freebusy_",
    "acl_",
    "settings_",
    "colors_",
    "users_",
    "groups_",
    "rooms_",
)


class CalendarService(EventService, EventReading, CalendarsService, AclService, DirectoryService):
    """One user at work on a company's calendars, at one moment.

    Args:
        store: The calendars.
        acting_user: The user's address. All rights are this user's.
        now: The world's date and time, aware of its zone. It stands still.

    Example:
        >>> service = CalendarService(store, "ann@acme.example", now)
        >>> service.events_list("primary", timeMin="2026-03-02T00:00:00Z", singleEvents=True)["items"]
    """

    def call(self, tool_name: str, arguments: Mapping[str, Any]) -> Resource:
        """Call a method with the fields of its body beside its other arguments.

        Args:
            tool_name: The method.
            arguments: Its arguments. One that is None counts as not given.

        Raises:
            CalendarError: It was refused, or the arguments are not the method's.
        """
        if tool_name not in methods():
            raise invalid(f"Unknown tool '{tool_name:.60}'.")
        parameters = methods()[tool_name]
        given = {name: value for name, value in arguments.items() if value is not None}
        own = {name: given.pop(name) for name in parameters if name != "body" and name in given}
        missing = [name for name, needed in parameters.items() if needed and name != "body" and name not in own]
        if missing:
            raise required(", ".join(missing))
        if "body" in parameters:
            body = given.pop("body", {})
            if not isinstance(body, Mapping):
                raise invalid("body must be an object.")
            own["body"] = {**body, **given}
        elif given:
            raise invalid(
                f"{tool_name} has no {', '.join(sorted(given))}; it takes {', '.join(parameters) or 'nothing'}."
            )
        method: Callable[..., Resource] = getattr(self, tool_name)
        return method(**own)


@lru_cache(maxsize=1)
def methods() -> dict[str, dict[str, bool]]:
    """The API's methods, each with its parameters and whether they must be given."""
    return {
        name: {
            parameter.name: parameter.default is inspect.Parameter.empty
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        }
        for name, function in inspect.getmembers(CalendarService, inspect.isfunction)
        if name.startswith(_PREFIXES)
    }
