"""The typed client: `CalendarAction` or a tool's call in, `CalendarObservation` out."""

from __future__ import annotations

from calendar_env.models import CalendarAction, CalendarObservation, CalendarState
from openenv_trl.client import TypedEnvClient


class CalendarEnv(TypedEnvClient[CalendarAction, CalendarObservation, CalendarState]):
    """One session on a calendar server.

    Example:
        >>> with CalendarEnv("http://localhost:8000").sync() as env:
        ...     print(env.reset(task="create_event", level="easy", task_seed=1).observation.message)
        ...     arguments = {"calendarId": "primary", "timeMin": "2026-03-02T00:00:00Z", "singleEvents": True}
        ...     call = CalendarAction(action_type="ToolCallAction", tool_name="events_list", arguments=arguments)
        ...     print(env.step(call).observation.resource["items"])
    """

    ACTION, OBSERVATION, STATE = CalendarAction, CalendarObservation, CalendarState
