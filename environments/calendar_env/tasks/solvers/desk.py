"""What a scripted assistant works with: the tools by name, and a few readings that most requests need.

Everything here is done by tool calls, as any agent would do it. Dates are reckoned with `zoneinfo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from calendar_env.tasks.busy import Span, half_hours, is_free, midnight, works
from calendar_env.tasks.occurrences import moment

Resource = dict[str, Any]


class Refused(Exception):
    """A tool refused a call; nothing was changed.

    Attributes:
        code: The API's code, such as 403.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Tools(Protocol):
    """Calls tools by name."""

    def call(self, tool: str, arguments: Resource) -> Resource:
        """What the tool answers.

        Raises:
            Refused: The tool refused.
        """
        ...


class ServiceTools:
    """The tools of a `CalendarService`, in process.

    Args:
        service: The service; it has a method ``call(tool, arguments)``.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def call(self, tool: str, arguments: Resource) -> Resource:
        """What the tool answers."""
        from calendar_env.server.errors import CalendarError

        try:
            return self._service.call(tool, arguments)
        except CalendarError as error:
            raise Refused(error.code, error.message) from error


class Desk:
    """An assistant's desk.

    Args:
        tools: The tools.
        user: The address of the user for whom the assistant acts.
    """

    def __init__(self, tools: Tools, user: str) -> None:
        self.user = user
        self._tools = tools

    def call(self, tool: str, **arguments: Any) -> Resource:
        """Call a tool; arguments that are None are left out."""
        return self._tools.call(tool, {name: value for name, value in arguments.items() if value is not None})

    def all_pages(self, tool: str, *, key: str = "items", **arguments: Any) -> list[Resource]:
        """What all pages of a list hold under a key."""
        page = self.call(tool, **arguments)
        items = list(page.get(key, []))
        while page.get("nextPageToken"):
            page = self.call(tool, **arguments, pageToken=page["nextPageToken"])
            items += page.get(key, [])
        return items

    def person(self, name: str) -> Resource:
        """The directory's entry of somebody."""
        found = self.all_pages("users_list", key="users", query=name)
        return next(each for each in found if each["name"] == name)

    def address(self, name: str) -> str:
        """Somebody's address."""
        return self.person(name)["primaryEmail"]

    def addresses(self, names: Sequence[str]) -> list[str]:
        """The addresses of several people."""
        return [self.address(name) for name in names]

    def calendar(self, title: str) -> str:
        """The id of the calendar of that title on the user's list; "primary" stays."""
        if title == "primary":
            return title
        found = self.all_pages("calendarList_list")
        return next(each["id"] for each in found if each["summary"] == title)

    def rooms(self, city: str, seats: int = 1, feature: str | None = None) -> list[Resource]:
        """Rooms in a city that hold so many, the smallest first."""
        found = self.call("rooms_list", minCapacity=seats)["rooms"]
        found = [each for each in found if each["location"] == city and feature in (None, *each["features"])]
        return sorted(found, key=lambda each: each["capacity"])

    def events(
        self, begin: datetime, end: datetime, calendar: str = "primary", *, words: str | None = None
    ) -> list[Resource]:
        """Single events and instances of series that overlap that time, in order; those with some words, if given."""
        return self.all_pages(
            "events_list",
            calendarId=calendar,
            timeMin=begin.isoformat(),
            timeMax=end.isoformat(),
            singleEvents=True,
            orderBy="startTime",
            q=words,
        )

    def day_events(self, first: date, last: date, zone: str, calendar: str = "primary") -> list[Resource]:
        """What happens from one day to another, both included."""
        return self.events(midnight(first, zone), midnight(last + timedelta(days=1), zone), calendar)

    def event_on(self, day: date, zone: str, title: str, calendar: str = "primary") -> Resource:
        """The event of that title on that day."""
        found = [each for each in self.day_events(day, day, zone, calendar) if each.get("summary") == title]
        return found[0]

    def series(self, title: str, calendar: str = "primary") -> Resource:
        """The series of that title, in full."""
        found = self.all_pages("events_list", calendarId=calendar, q=title, singleEvents=False)
        event = next(each for each in found if each.get("summary") == title and each.get("recurrence"))
        return self.call("events_get", calendarId=calendar, eventId=event["id"])

    def busy(self, addresses: Sequence[str], begin: datetime, end: datetime) -> dict[str, list[Span]]:
        """When they are busy, by free/busy."""
        answer = self.call(
            "freebusy_query",
            timeMin=begin.isoformat(),
            timeMax=end.isoformat(),
            items=[{"id": address} for address in addresses],
        )
        return {
            address: [
                (moment({"dateTime": span["start"]}), moment({"dateTime": span["end"]}))
                for span in answer["calendars"][address]["busy"]
            ]
            for address in addresses
        }

    def first_slot(
        self,
        people: Sequence[Resource],
        begin: datetime,
        minutes: int,
        *,
        days: int = 10,
        suits: Callable[[datetime, datetime], bool] = lambda start, end: True,
    ) -> datetime:
        """The first full or half hour at which all are at work and free, and which suits."""
        spans = self.busy([each["primaryEmail"] for each in people], begin, begin + timedelta(days=days + 1))
        for start in half_hours(begin, days):
            end = start + timedelta(minutes=minutes)
            at_work = all(works(each["workingHours"], each["timeZone"], start, end) for each in people)
            if at_work and suits(start, end) and all(is_free(busy, start, end) for busy in spans.values()):
                return start
        raise LookupError("They have no time together.")

    def answer(self, event: Resource, response: str) -> None:
        """Answer an invitation for the user."""
        attendees = [
            {**each, "responseStatus": response} if each["email"] == self.user else each for each in event["attendees"]
        ]
        self.call("events_patch", calendarId="primary", eventId=event["id"], attendees=attendees)

    def my_answer(self, event: Mapping[str, Any]) -> str | None:
        """How the user answered; None where they were not invited."""
        for each in event.get("attendees", ()):
            if each["email"] == self.user:
                return each.get("responseStatus", "needsAction")
        return None

    def is_mine(self, event: Mapping[str, Any]) -> bool:
        """Whether the user organises it."""
        return event.get("organizer", {}).get("email") == self.user


def when(start: datetime, minutes: int, zone: str) -> dict[str, Resource]:
    """``start`` and ``end`` of an event."""
    begin = start.astimezone(ZoneInfo(zone))
    end = (start.astimezone(timezone.utc) + timedelta(minutes=minutes)).astimezone(ZoneInfo(zone))
    return {
        "start": {"dateTime": begin.isoformat(), "timeZone": zone},
        "end": {"dateTime": end.isoformat(), "timeZone": zone},
    }


def begins(event: Mapping[str, Any]) -> datetime:
    """When it begins, in UTC."""
    return moment(event["start"])


def ends(event: Mapping[str, Any]) -> datetime:
    """When it ends, in UTC."""
    return moment(event["end"])


def minutes_of(event: Mapping[str, Any]) -> int:
    """How long it lasts."""
    return round((ends(event) - begins(event)).total_seconds() / 60)


def guests(addresses: Sequence[str]) -> list[Resource]:
    """Attendees of a new event."""
    return [{"email": address} for address in addresses]


def has_time(event: Mapping[str, Any]) -> bool:
    """Whether it has a start time, and not only a date."""
    return "dateTime" in event["start"]
