"""Tools to look things up: people, mailing lists, rooms, settings, colours."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from calendar_env.models import CalendarObservation
from calendar_env.server.tools.base import Page, ToolGroup
from openenv_trl.environment import tool


class DirectoryTools(ToolGroup):
    """The company's directory, as in the Workspace Directory API, and the API's ``settings`` and ``colors``."""

    @tool
    def users_list(
        self,
        query: Annotated[str | None, Field(description="Words of a name, address or title.")] = None,
        role: Literal["employee", "manager", "assistant", "room_admin"] | None = None,
        maxResults: int | None = None,
        pageToken: Page = None,
    ) -> CalendarObservation:
        """Find people: their addresses, time zones, working hours and managers."""
        return self.use("users_list", query=query, role=role, maxResults=maxResults, pageToken=pageToken)

    @tool
    def users_get(
        self, userKey: Annotated[str, Field(description='E-mail address, or "me" for the user.')]
    ) -> CalendarObservation:
        """Show one person."""
        return self.use("users_get", userKey=userKey)

    @tool
    def groups_list(self) -> CalendarObservation:
        """List the mailing lists with their members."""
        return self.use("groups_list")

    @tool
    def rooms_list(
        self,
        minCapacity: int | None = None,
        query: Annotated[str | None, Field(description="Words of a name, location or feature.")] = None,
    ) -> CalendarObservation:
        """List rooms. A room is booked by inviting its resourceEmail."""
        return self.use("rooms_list", minCapacity=minCapacity, query=query)

    @tool
    def settings_list(self, maxResults: int | None = None, pageToken: Page = None) -> CalendarObservation:
        """List the user's settings, such as timezone, weekStart, workingHours and defaultEventLength."""
        return self.use("settings_list", maxResults=maxResults, pageToken=pageToken)

    @tool
    def settings_get(self, setting: str) -> CalendarObservation:
        """Show one of the user's settings."""
        return self.use("settings_get", setting=setting)

    @tool
    def colors_get(self) -> CalendarObservation:
        """List the colours of calendars and events by colorId."""
        return self.use("colors_get")
