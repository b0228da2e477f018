"""The fields of an event that callers write: each checked, and brought into the form in which it is kept.

Fields that only the API itself writes (``etag``, ``creator``, ``organizer`` and the like) are passed over, so that an
event that was read can be sent back whole.

Source: "Events" of the Google Calendar API v3, for names, values and limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from calendar_env.server.errors import invalid
from calendar_env.server.times import read_time

Body = dict[str, Any]

READ_ONLY = frozenset(
    (
        *("kind", "etag", "id", "iCalUID", "htmlLink", "created", "updated", "creator", "organizer", "sequence"),
        *("recurringEventId", "originalStartTime", "hangoutLink", "conferenceData", "attendeesOmitted", "locked"),
    )
)
"""What callers may send back and cannot change."""

GUEST_OWN = ("reminders", "colorId", "transparency", "visibility")
"""What each guest has for itself, whatever the organizer's copy says."""

DEFAULTS: Body = {
    "visibility": "default",
    "transparency": "opaque",
    "eventType": "default",
    "status": "confirmed",
    "guestsCanModify": False,
    "guestsCanInviteOthers": True,
    "guestsCanSeeOtherGuests": True,
    "reminders": {"useDefault": True},
}
"""What a field means where it is not set. It is then not kept either."""

_TEXT_LIMITS = {"summary": 1024, "description": 8192, "location": 1024}
_CHOICES = {
    "visibility": ("default", "public", "private", "confidential"),
    "transparency": ("opaque", "transparent"),
    "status": ("confirmed", "tentative", "cancelled"),
    "eventType": ("default", "outOfOffice", "focusTime"),
    "colorId": tuple(str(number) for number in range(1, 12)),
}
RESPONSES = ("needsAction", "declined", "tentative", "accepted")
_SWITCHES = ("guestsCanModify", "guestsCanInviteOthers", "guestsCanSeeOtherGuests")
_ADDRESS = re.compile(r"[^@\s,;<>]{1,64}@[^@\s,;<>]{1,190}")
_MAX_ATTENDEES = 200
_LONGEST_PROPERTY = 1024
_LONGEST_REMINDER = 40320  # minutes: four weeks


def read_body(body: Mapping[str, Any], calendar_zone: str) -> Body:
    """The writable fields of an event, checked; ``recurrence`` is left as it came, since it needs the start.

    Args:
        body: The API's resource, or part of it. A field that is None is cleared.
        calendar_zone: The zone of times that name none.

    Raises:
        CalendarError: A field is unknown or has a value it cannot have.
    """
    read: Body = {}
    for name, value in body.items():
        if name in READ_ONLY:
            continue
        reader = _READERS.get(name)
        if name in ("start", "end"):
            read[name] = read_time(name, value, calendar_zone)
        elif reader is None:
            raise invalid(f"Unknown field '{name:.60}' of an event. Fields are: start, end, {', '.join(_READERS)}.")
        else:
            read[name] = DEFAULTS.get(name) if value is None else reader(name, value)
    return read


def without_defaults(body: Body) -> Body:
    """The fields that say something: neither empty nor what they mean unset."""
    return {
        name: value for name, value in body.items() if value not in ("", None, [], {}) and value != DEFAULTS.get(name)
    }


def read_address(name: str, value: Any) -> str:
    """An e-mail address, in small letters.

    Raises:
        CalendarError: It is none.
    """
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value.strip()):
        raise invalid(f"{name} must be an e-mail address, not {value!r:.80}.")
    return value.strip().lower()


def read_reminders(name: str, value: Any) -> Body:
    """Reminders of an event.

    Raises:
        CalendarError: They cannot be used.
    """
    if not isinstance(value, Mapping):
        raise invalid(f"{name} must be an object such as {{'useDefault': false, 'overrides': [...]}}.")
    overrides = read_reminder_list(f"{name}.overrides", value.get("overrides") or [])
    use_default = bool(value.get("useDefault", not overrides))
    if use_default and overrides:
        raise invalid(
            "reminders.overrides need reminders.useDefault to be false.", "cannotUseDefaultRemindersAndSpecifyOverride"
        )
    return {"useDefault": True} if use_default else {"useDefault": False, "overrides": overrides}


def read_reminder_list(name: str, value: Any) -> list[Body]:
    """A list of reminders, each with method and minutes.

    Raises:
        CalendarError: It cannot be used.
    """
    if not isinstance(value, list) or len(value) > 5:
        raise invalid(f"{name} must be a list of at most five reminders.")
    read: list[Body] = []
    for entry in value:
        method = entry.get("method", "popup") if isinstance(entry, Mapping) else None
        minutes = entry.get("minutes") if isinstance(entry, Mapping) else None
        wrong_minutes = (
            not isinstance(minutes, int) or isinstance(minutes, bool) or not 0 <= minutes <= _LONGEST_REMINDER
        )
        if method not in ("email", "popup") or wrong_minutes:
            raise invalid(f"{name}: each is {{'method': 'popup' or 'email', 'minutes': 0 to {_LONGEST_REMINDER}}}.")
        read.append({"method": method, "minutes": minutes})
    return read


def _read_text(name: str, value: Any) -> str:
    limit = _TEXT_LIMITS[name]
    if not isinstance(value, str) or len(value) > limit:
        raise invalid(f"{name} must be text of at most {limit} characters.")
    return value


def _read_choice(name: str, value: Any) -> str:
    choices = _CHOICES[name]
    if value not in choices:
        raise invalid(f"{name} must be one of {', '.join(choices)}, not {value!r:.60}.")
    return str(value)


def _read_switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"{name} must be true or false, not {value!r:.60}.")
    return value


def _read_attendees(name: str, value: Any) -> list[Body]:
    if not isinstance(value, list) or len(value) > _MAX_ATTENDEES:
        raise invalid(f"{name} must be a list of at most {_MAX_ATTENDEES} attendees, each with an email.")
    read: list[Body] = []
    for entry in value:
        if not isinstance(entry, Mapping):
            raise invalid(f"{name}: each attendee is an object such as {{'email': 'ann@acme.example'}}.")
        guest: Body = {"email": read_address("attendees.email", entry.get("email"))}
        if any(guest["email"] == other["email"] for other in read):
            raise invalid(f"{name}: {guest['email']} is in the list twice.")
        response = entry.get("responseStatus")
        if response is not None and response not in RESPONSES:
            raise invalid(f"attendees.responseStatus must be one of {', '.join(RESPONSES)}, not {response!r:.60}.")
        extra = entry.get("additionalGuests") or 0
        if not isinstance(extra, int) or not 0 <= extra <= 100:
            raise invalid("attendees.additionalGuests must be a number from 0 to 100.")
        optional = {
            "displayName": entry.get("displayName"),
            "responseStatus": response,
            "comment": entry.get("comment"),
        }
        flags = {"optional": entry.get("optional"), "additionalGuests": extra}
        guest.update({key: str(text)[:500] for key, text in optional.items() if text is not None})
        guest.update({key: flag for key, flag in flags.items() if flag})
        read.append(guest)
    return read


def _read_lines(name: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise invalid(f'{name} must be a list of lines such as ["RRULE:FREQ=WEEKLY;BYDAY=MO"].')
    return value


def _read_properties(name: str, value: Any) -> Body:
    groups = value if isinstance(value, Mapping) else {"": None}
    for group, properties in groups.items():
        texts = properties.items() if isinstance(properties, Mapping) else [(None, None)]
        fit = all(isinstance(text, str) and len(text) <= _LONGEST_PROPERTY for pair in texts for text in pair)
        if group not in ("private", "shared") or not fit or len(texts) > 50:
            limits = f"at most 50 names, texts of at most {_LONGEST_PROPERTY} characters"
            raise invalid(f"{name} must be {{'private': {{name: text}}, 'shared': {{name: text}}}}: {limits}.")
    return {group: dict(properties) for group, properties in groups.items()}


_READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(_TEXT_LIMITS, _read_text),
    "recurrence": _read_lines,
    "attendees": _read_attendees,
    **dict.fromkeys(_CHOICES, _read_choice),
    "reminders": read_reminders,
    **dict.fromkeys(_SWITCHES, _read_switch),
    "extendedProperties": _read_properties,
}
