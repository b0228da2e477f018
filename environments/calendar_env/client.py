"""The typed client: `CalendarAction` or a tool's call in, `CalendarObservation` out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from calendar_env.models import CalendarAction, CalendarObservation, CalendarState
from openenv_trl.client import EnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import CallToolAction, StepResult


class CalendarEnv(EnvClient[CalendarAction | CallToolAction | Mapping[str, Any], CalendarObservation, CalendarState]):
    """One session on a calendar server.

    Example:
        >>> with CalendarEnv("http://localhost:8000").sync() as env:
        ...     print(env.reset(task="create_event", level="easy", task_seed=1).observation.message)
        ...     arguments = {"calendarId": "primary", "timeMin": "2026-03-02T00:00:00Z", "singleEvents": True}
        ...     call = CalendarAction(action_type="ToolCallAction", tool_name="events_list", arguments=arguments)
        ...     print(env.step(call).observation.resource["items"])
    """

    async def call_tool(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, /, **named: Any
    ) -> StepResult[CalendarObservation]:
        """Take a step by a tool, as ``step(CallToolAction(...))`` does: reward and end are in what it returns.

        Args:
            tool_name: The tool.
            arguments: Its arguments, as a mapping.
            named: Its arguments, by name.

        Raises:
            OpenEnvError: As `EnvClient.step`.
        """
        return await self.step(CallToolAction(tool_name=tool_name, arguments={**(arguments or {}), **named}))

    def _step_payload(self, action: CalendarAction | CallToolAction | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(action, CalendarAction):
            return {
                "action_type": action.action_type,
                "tool_name": action.tool_name,
                "arguments": action.arguments,
            }
        if isinstance(action, CallToolAction):
            return action.model_dump(exclude={"metadata"})
        if isinstance(cast("object", action), Mapping):
            return dict(action)
        raise ConfigurationError(
            f"An action must be a CalendarAction, a CallToolAction or a mapping, not {type(action).__name__}."
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CalendarObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = CalendarObservation(**{**payload["observation"], "done": done, "reward": reward})
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> CalendarState:
        return CalendarState(**payload)
