"""The typed client: `OpenSpielAction` or a tool's call in, `OpenSpielObservation` out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.client import EnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import CallToolAction, StepResult
from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState


class OpenSpielEnv(
    EnvClient[OpenSpielAction | CallToolAction | Mapping[str, Any], OpenSpielObservation, OpenSpielState]
):
    """One session on a server of an OpenSpiel game, ours or the public package's.

    Example:
        >>> with OpenSpielEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         result = env.step(OpenSpielAction(action_id=result.observation.legal_actions[0]))
        ...     print(result.observation.message, result.reward)
    """

    async def call_tool(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, /, **named: Any
    ) -> StepResult[OpenSpielObservation]:
        """Take a step by a tool, as ``step(CallToolAction(...))`` does: reward and end are in what it returns.

        Args:
            tool_name: The tool.
            arguments: Its arguments, as a mapping.
            named: Its arguments, by name.

        Raises:
            OpenEnvError: As `EnvClient.step`.
        """
        return await self.step(CallToolAction(tool_name=tool_name, arguments={**(arguments or {}), **named}))

    def _step_payload(self, action: OpenSpielAction | CallToolAction | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(action, OpenSpielAction):
            return {"action_id": action.action_id, "game_name": action.game_name, "game_params": action.game_params}
        if isinstance(action, CallToolAction):
            return action.model_dump(exclude={"metadata"})
        if isinstance(cast("object", action), Mapping):
            return dict(action)
        raise ConfigurationError(
            f"An action must be an OpenSpielAction, a CallToolAction or a mapping, not {type(action).__name__}."
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[OpenSpielObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = OpenSpielObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> OpenSpielState:
        return OpenSpielState(**payload)
