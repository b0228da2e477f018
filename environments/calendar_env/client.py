"""The typed client: `CalendarAction` in, `CalendarObservation` out."""

from __future__ import annotations

from typing import Any

from calendar_env.models import CalendarAction, CalendarObservation, CalendarState
from openenv_trl.client import EnvClient
from openenv_trl.types import StepResult


class CalendarEnv(EnvClient[CalendarAction, CalendarObservation, CalendarState]):
    """One session on a calendar server.

    Example:
        >>> with CalendarEnv("http://localhost:8000").sync() as env:
        ...     print(env.reset(task="create_event", level="easy", task_seed=1).observation.message)
        ...     arguments = {"calendarId": "primary", "timeMin": "2026-03-02T00:00:00Z", "singleEvents": True}
        ...     call = CalendarAction(action_type="ToolCallAction", tool_name="events_list", arguments=arguments)
        ...     print(env.step(call).observation.resource["items"])
    """

    def _step_payload(self, action: CalendarAction) -> dict[str, Any]:
        return {
            "action_type": action.action_type,
            "tool_name": action.tool_name,
            "arguments": action.arguments,
        }

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CalendarObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = CalendarObservation(**{**payload["observation"], "done": done, "reward": reward})
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> CalendarState:
        return CalendarState(**payload)
