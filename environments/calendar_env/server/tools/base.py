"""What every group of tools is built on: one way to the service."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from calendar_env.models import CalendarObservation

CalendarId = Annotated[str, Field(description="The calendar's id, an e-mail address; \"primary\" is the user's own.")]
EventId = Annotated[str, Field(description="The event's id, or that of one instance of a series.")]
SendUpdates = Annotated[
    Literal["all", "externalOnly", "none"] | None,
    Field(description="Who is sent a message about it; none if left out."),
]
Moment = Annotated[str | None, Field(description="RFC 3339 with offset, e.g. 2026-03-02T00:00:00+01:00.")]
ShownZone = Annotated[str | None, Field(description="Time zone to show times in.")]
Page = Annotated[str | None, Field(description="nextPageToken of the page before.")]


class ToolGroup:
    """Methods that are tools of the environment."""

    def use(self, tool_name: str, **arguments: Any) -> CalendarObservation:
        """Take the step that calls a method of the calendar service."""
        raise NotImplementedError
