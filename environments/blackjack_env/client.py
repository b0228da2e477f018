"""The typed client: `BlackjackAction` or a tool's call in, `BlackjackObservation` out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from blackjack_env.models import BlackjackAction, BlackjackObservation, BlackjackState
from openenv_trl.client import EnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import CallToolAction, StepResult


class BlackjackEnv(
    EnvClient[BlackjackAction | CallToolAction | Mapping[str, Any], BlackjackObservation, BlackjackState]
):
    """One session on a blackjack server.

    Example:
        >>> with BlackjackEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         move = "hit" if result.observation.player_sum < 17 else "stand"
        ...         result = env.step(BlackjackAction(move=move))
        ...     print(result.observation.message)
    """

    async def call_tool(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, /, **named: Any
    ) -> StepResult[BlackjackObservation]:
        """Take a step by a tool, as ``step(CallToolAction(...))`` does: reward and end are in what it returns.

        Args:
            tool_name: The tool.
            arguments: Its arguments, as a mapping.
            named: Its arguments, by name.

        Raises:
            OpenEnvError: As `EnvClient.step`.
        """
        return await self.step(CallToolAction(tool_name=tool_name, arguments={**(arguments or {}), **named}))

    def _step_payload(self, action: BlackjackAction | CallToolAction | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(action, BlackjackAction):
            return {"move": action.move}
        if isinstance(action, CallToolAction):
            return action.model_dump(exclude={"metadata"})
        if isinstance(cast("object", action), Mapping):
            return dict(action)
        raise ConfigurationError(
            f"An action must be a BlackjackAction, a CallToolAction or a mapping, not {type(action).__name__}."
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[BlackjackObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = BlackjackObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> BlackjackState:
        return BlackjackState(**payload)
