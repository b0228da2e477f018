"""The resources that tools take, typed, so that models are shown what is in them.

Source: the resource types of the Google Calendar API v3.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class EventDateTime(BaseModel):
    """When an event starts or ends: a day, or a date and time."""

    model_config = ConfigDict(extra="forbid")

    dateTime: Annotated[
        str | None,
        Field(description="RFC 3339, e.g. 2026-03-02T09:00:00+01:00; without an offset it is local to timeZone."),
    ] = None
    date: Annotated[
        str | None, Field(description="YYYY-MM-DD, for all-day events. As an end: the day after the last.")
    ] = None
    timeZone: Annotated[str | None, Field(description="IANA name, e.g. Europe/Berlin; the calendar's if left out.")] = (
        None
    )


class Attendee(BaseModel):
    """One guest of an event. Other fields, as an event that was read has them, are passed over."""

    model_config = ConfigDict(extra="ignore")

    email: Annotated[str, Field(description="E-mail address of a person, mailing list or room.")]
    responseStatus: Literal["needsAction", "declined", "tentative", "accepted"] | None = None
    optional: bool | None = None
    comment: str | None = None
    displayName: str | None = None
    additionalGuests: int | None = None


class Reminder(BaseModel):
    """One reminder."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["popup", "email"] = "popup"
    minutes: Annotated[int, Field(description="Minutes before the start.")]


class Reminders(BaseModel):
    """Reminders of an event."""

    model_config = ConfigDict(extra="forbid")

    useDefault: bool | None = None
    overrides: list[Reminder] | None = None


class ExtendedProperties(BaseModel):
    """Properties that programs keep with an event."""

    model_config = ConfigDict(extra="forbid")

    private: dict[str, str] | None = None
    shared: dict[str, str] | None = None


class AclScope(BaseModel):
    """Whom a rule is for."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["user", "group", "domain", "default"]
    value: Annotated[str | None, Field(description="The e-mail address or domain; none for default.")] = None


class FreeBusyItem(BaseModel):
    """A calendar, person or mailing list."""

    model_config = ConfigDict(extra="ignore")

    id: str


class EventFields(BaseModel):
    """What callers write of an event."""

    summary: Annotated[str | None, Field(description="Title.")] = None
    start: EventDateTime | None = None
    end: EventDateTime | None = None
    description: str | None = None
    location: str | None = None
    attendees: Annotated[
        list[Attendee] | None, Field(description="All guests. Replaces the whole list; keep those who stay.")
    ] = None
    recurrence: Annotated[
        list[str] | None, Field(description='RFC 5545 lines, e.g. ["RRULE:FREQ=WEEKLY;BYDAY=MO;COUNT=10"].')
    ] = None
    visibility: Literal["default", "public", "private", "confidential"] | None = None
    transparency: Annotated[
        Literal["opaque", "transparent"] | None, Field(description="opaque blocks time (busy), transparent does not.")
    ] = None
    status: Literal["confirmed", "tentative", "cancelled"] | None = None
    eventType: Literal["default", "outOfOffice", "focusTime"] | None = None
    colorId: Annotated[str | None, Field(description="1 to 11; see colors_get.")] = None
    reminders: Reminders | None = None
    guestsCanModify: bool | None = None
    guestsCanInviteOthers: bool | None = None
    guestsCanSeeOtherGuests: bool | None = None
    extendedProperties: ExtendedProperties | None = None


class CalendarFields(BaseModel):
    """What callers write of a calendar."""

    summary: Annotated[str | None, Field(description="Name.")] = None
    description: str | None = None
    location: str | None = None
    timeZone: Annotated[str | None, Field(description="IANA name.")] = None


class ListEntryFields(BaseModel):
    """How a calendar is shown on a user's list."""

    summaryOverride: Annotated[str | None, Field(description="The user's own name for it.")] = None
    colorId: Annotated[str | None, Field(description="1 to 24; see colors_get.")] = None
    hidden: bool | None = None
    selected: bool | None = None
    defaultReminders: list[Reminder] | None = None


def plain(value: Any) -> Any:
    """An argument as plain JSON values, without what was not given."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return value
