"""Tools for calendars, for the user's list of them, and for who has access."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from calendar_env.models import CalendarObservation
from calendar_env.server.tools.base import CalendarId, Page, ToolGroup
from calendar_env.server.tools.resources import AclScope, CalendarFields, ListEntryFields
from calendar_env.server.tools.schemas import with_fields_of
from openenv_trl.environment import tool

RuleId = Annotated[str, Field(description="The rule's id, e.g. user:ann@acme.example.")]
Role = Literal["none", "freeBusyReader", "reader", "writer", "owner"]


class CalendarTools(ToolGroup):
    """The API's ``calendars`` and ``calendarList``."""

    @tool
    def calendars_get(self, calendarId: CalendarId) -> CalendarObservation:
        """Show a calendar's name and time zone."""
        return self.use("calendars_get", calendarId=calendarId)

    @tool
    @with_fields_of(CalendarFields)
    def calendars_insert(self, **body: Any) -> CalendarObservation:
        """Create a calendar that the user owns; summary is needed."""
        return self.use("calendars_insert", **body)

    @tool
    @with_fields_of(CalendarFields)
    def calendars_patch(self, calendarId: CalendarId, **body: Any) -> CalendarObservation:
        """Change some of a calendar's fields."""
        return self.use("calendars_patch", calendarId=calendarId, **body)

    @tool
    @with_fields_of(CalendarFields)
    def calendars_update(self, calendarId: CalendarId, **body: Any) -> CalendarObservation:
        """Replace a calendar's fields: those that are not given are cleared."""
        return self.use("calendars_update", calendarId=calendarId, **body)

    @tool
    def calendars_delete(self, calendarId: CalendarId) -> CalendarObservation:
        """Delete a secondary calendar with all its events."""
        return self.use("calendars_delete", calendarId=calendarId)

    @tool
    def calendars_clear(self, calendarId: CalendarId) -> CalendarObservation:
        """Delete all events of a primary calendar."""
        return self.use("calendars_clear", calendarId=calendarId)

    @tool
    def calendarList_list(
        self,
        minAccessRole: Literal["freeBusyReader", "reader", "writer", "owner"] | None = None,
        showHidden: bool = False,
        showDeleted: bool = False,
        maxResults: int | None = None,
        pageToken: Page = None,
    ) -> CalendarObservation:
        """List the calendars on the user's list, with the user's access to each."""
        return self.use(
            "calendarList_list",
            minAccessRole=minAccessRole,
            showHidden=showHidden,
            showDeleted=showDeleted,
            maxResults=maxResults,
            pageToken=pageToken,
        )

    @tool
    def calendarList_get(self, calendarId: CalendarId) -> CalendarObservation:
        """Show one entry of the user's list."""
        return self.use("calendarList_get", calendarId=calendarId)

    @tool
    @with_fields_of(ListEntryFields)
    def calendarList_insert(
        self, id: Annotated[str, Field(description="The calendar's id.")], **body: Any
    ) -> CalendarObservation:
        """Put a calendar on the user's list."""
        return self.use("calendarList_insert", id=id, **body)

    @tool
    @with_fields_of(ListEntryFields)
    def calendarList_patch(self, calendarId: CalendarId, **body: Any) -> CalendarObservation:
        """Change how a calendar is shown on the user's list."""
        return self.use("calendarList_patch", calendarId=calendarId, **body)

    @tool
    @with_fields_of(ListEntryFields)
    def calendarList_update(self, calendarId: CalendarId, **body: Any) -> CalendarObservation:
        """Replace how a calendar is shown on the user's list."""
        return self.use("calendarList_update", calendarId=calendarId, **body)

    @tool
    def calendarList_delete(self, calendarId: CalendarId) -> CalendarObservation:
        """Take a calendar off the user's list. The calendar stays."""
        return self.use("calendarList_delete", calendarId=calendarId)


class AclTools(ToolGroup):
    """The API's ``acl``."""

    @tool
    def acl_list(
        self,
        calendarId: CalendarId,
        showDeleted: bool = False,
        maxResults: int | None = None,
        pageToken: Page = None,
    ) -> CalendarObservation:
        """List who has access to a calendar. Only for its owners."""
        return self.use(
            "acl_list", calendarId=calendarId, showDeleted=showDeleted, maxResults=maxResults, pageToken=pageToken
        )

    @tool
    def acl_get(self, calendarId: CalendarId, ruleId: RuleId) -> CalendarObservation:
        """Show one rule of access."""
        return self.use("acl_get", calendarId=calendarId, ruleId=ruleId)

    @tool
    def acl_insert(
        self, calendarId: CalendarId, role: Role, scope: AclScope, sendNotifications: bool | None = None
    ) -> CalendarObservation:
        """Share a calendar: freeBusyReader sees busy times, reader events, writer changes them, owner also shares."""
        del sendNotifications  # the API's; sharing sends nobody anything here
        return self.use("acl_insert", calendarId=calendarId, role=role, scope=scope)

    @tool
    def acl_patch(
        self, calendarId: CalendarId, ruleId: RuleId, role: Role | None = None, scope: AclScope | None = None
    ) -> CalendarObservation:
        """Change the role that a rule gives."""
        return self.use("acl_patch", calendarId=calendarId, ruleId=ruleId, role=role, scope=scope)

    @tool
    def acl_update(
        self, calendarId: CalendarId, ruleId: RuleId, role: Role, scope: AclScope | None = None
    ) -> CalendarObservation:
        """Replace a rule of access."""
        return self.use("acl_update", calendarId=calendarId, ruleId=ruleId, role=role, scope=scope)

    @tool
    def acl_delete(self, calendarId: CalendarId, ruleId: RuleId) -> CalendarObservation:
        """Take access away: delete a rule."""
        return self.use("acl_delete", calendarId=calendarId, ruleId=ruleId)
