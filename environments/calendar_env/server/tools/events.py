"""Tools for events, and for when people are busy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from calendar_env.models import CalendarObservation
from calendar_env.server.tools.base import CalendarId, EventId, Moment, Page, SendUpdates, ShownZone, ToolGroup
from calendar_env.server.tools.resources import EventFields, FreeBusyItem
from calendar_env.server.tools.schemas import with_fields_of
from openenv_trl.environment import tool


class EventTools(ToolGroup):
    """The API's ``events`` and ``freebusy``."""

    @tool
    def events_list(
        self,
        calendarId: CalendarId,
        timeMin: Moment = None,
        timeMax: Moment = None,
        q: Annotated[str | None, Field(description="Words to find in title, description, location and guests.")] = None,
        singleEvents: Annotated[bool, Field(description="Show series as their instances.")] = False,
        orderBy: Annotated[
            Literal["startTime", "updated"] | None, Field(description="startTime needs singleEvents.")
        ] = None,
        showDeleted: bool = False,
        maxResults: int | None = None,
        pageToken: Page = None,
        timeZone: ShownZone = None,
        updatedMin: Moment = None,
        iCalUID: str | None = None,
        eventTypes: list[Literal["default", "outOfOffice", "focusTime"]] | None = None,
        syncToken: str | None = None,
    ) -> CalendarObservation:
        """List a calendar's events. Set timeMin, timeMax and singleEvents=true to see what happens when."""
        return self.use(
            "events_list",
            calendarId=calendarId,
            timeMin=timeMin,
            timeMax=timeMax,
            q=q,
            singleEvents=singleEvents,
            orderBy=orderBy,
            showDeleted=showDeleted,
            maxResults=maxResults,
            pageToken=pageToken,
            timeZone=timeZone,
            updatedMin=updatedMin,
            iCalUID=iCalUID,
            eventTypes=eventTypes,
            syncToken=syncToken,
        )

    @tool
    def events_get(self, calendarId: CalendarId, eventId: EventId, timeZone: ShownZone = None) -> CalendarObservation:
        """Show one event in full."""
        return self.use("events_get", calendarId=calendarId, eventId=eventId, timeZone=timeZone)

    @tool
    @with_fields_of(EventFields)
    def events_insert(
        self,
        calendarId: CalendarId,
        sendUpdates: SendUpdates = None,
        id: Annotated[str | None, Field(description="An id of your own: letters a to v and digits.")] = None,
        **body: Any,
    ) -> CalendarObservation:
        """Create an event; start and end are needed. Rooms are booked as attendees and answer at once."""
        return self.use("events_insert", calendarId=calendarId, sendUpdates=sendUpdates, id=id, **body)

    @tool
    @with_fields_of(EventFields)
    def events_patch(
        self, calendarId: CalendarId, eventId: EventId, sendUpdates: SendUpdates = None, **body: Any
    ) -> CalendarObservation:
        """Change some fields of an event, a series or one instance. A guest answers so too, by its responseStatus."""
        return self.use("events_patch", calendarId=calendarId, eventId=eventId, sendUpdates=sendUpdates, **body)

    @tool
    @with_fields_of(EventFields)
    def events_update(
        self, calendarId: CalendarId, eventId: EventId, sendUpdates: SendUpdates = None, **body: Any
    ) -> CalendarObservation:
        """Replace an event: fields that are not given are cleared. events_patch is safer."""
        return self.use("events_update", calendarId=calendarId, eventId=eventId, sendUpdates=sendUpdates, **body)

    @tool
    def events_delete(
        self, calendarId: CalendarId, eventId: EventId, sendUpdates: SendUpdates = None
    ) -> CalendarObservation:
        """Cancel an event, a series, or one instance. On a guest's calendar: take it off that calendar only."""
        return self.use("events_delete", calendarId=calendarId, eventId=eventId, sendUpdates=sendUpdates)

    @tool
    def events_move(
        self,
        calendarId: CalendarId,
        eventId: EventId,
        destination: Annotated[str, Field(description="Id of the calendar that becomes the organizer.")],
        sendUpdates: SendUpdates = None,
    ) -> CalendarObservation:
        """Move an event to another calendar. This changes its organizer, not its time."""
        return self.use(
            "events_move", calendarId=calendarId, eventId=eventId, destination=destination, sendUpdates=sendUpdates
        )

    @tool
    def events_instances(
        self,
        calendarId: CalendarId,
        eventId: Annotated[str, Field(description="The series' id.")],
        timeMin: Moment = None,
        timeMax: Moment = None,
        originalStart: Annotated[
            str | None, Field(description="Only the instance that starts so by the series.")
        ] = None,
        showDeleted: bool = False,
        maxResults: int | None = None,
        pageToken: Page = None,
        timeZone: ShownZone = None,
    ) -> CalendarObservation:
        """List the instances of a series, with their ids."""
        return self.use(
            "events_instances",
            calendarId=calendarId,
            eventId=eventId,
            timeMin=timeMin,
            timeMax=timeMax,
            originalStart=originalStart,
            showDeleted=showDeleted,
            maxResults=maxResults,
            pageToken=pageToken,
            timeZone=timeZone,
        )

    @tool
    def events_quickAdd(
        self,
        calendarId: CalendarId,
        text: Annotated[
            str,
            Field(
                description='TITLE on DATE at TIME [for LENGTH | to TIME], e.g. "Lunch on 5 March at 12:30 for 1 hour".'
            ),
        ],
        sendUpdates: SendUpdates = None,
    ) -> CalendarObservation:
        """Create an event from one line of text."""
        return self.use("events_quickAdd", calendarId=calendarId, text=text, sendUpdates=sendUpdates)

    @tool
    def freebusy_query(
        self,
        timeMin: Annotated[str, Field(description="RFC 3339 with offset.")],
        timeMax: Annotated[str, Field(description="RFC 3339 with offset.")],
        items: Annotated[list[FreeBusyItem], Field(description='Calendars, e.g. [{"id": "ann@acme.example"}].')],
        timeZone: Annotated[str | None, Field(description="Time zone of the answer; UTC if left out.")] = None,
        groupExpansionMax: int | None = None,
        calendarExpansionMax: int | None = None,
    ) -> CalendarObservation:
        """Tell when people, mailing lists and rooms are busy."""
        return self.use(
            "freebusy_query",
            timeMin=timeMin,
            timeMax=timeMax,
            items=items,
            timeZone=timeZone,
            groupExpansionMax=groupExpansionMax,
            calendarExpansionMax=calendarExpansionMax,
        )
