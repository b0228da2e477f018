"""The typed client: `AtariAction` or a tool's call in, `AtariObservation` out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from atari_env.models import AtariAction, AtariObservation, AtariState
from openenv_trl.client import EnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import CallToolAction, StepResult


class AtariEnv(EnvClient[AtariAction | CallToolAction | Mapping[str, Any], AtariObservation, AtariState]):
    """One session on a server of an Atari game, ours or the public package's.

    Example:
        >>> with AtariEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         result = env.step(AtariAction(action_id=2))
        ...     print(result.observation.pixels().shape)
    """

    async def call_tool(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, /, **named: Any
    ) -> StepResult[AtariObservation]:
        """Take a step by a tool, as ``step(CallToolAction(...))`` does: reward and end are in what it returns.

        Args:
            tool_name: The tool.
            arguments: Its arguments, as a mapping.
            named: Its arguments, by name.

        Raises:
            OpenEnvError: As `EnvClient.step`.
        """
        return await self.step(CallToolAction(tool_name=tool_name, arguments={**(arguments or {}), **named}))

    def _step_payload(self, action: AtariAction | CallToolAction | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(action, AtariAction):
            return action.model_dump(exclude={"metadata"})
        if isinstance(action, CallToolAction):
            return action.model_dump(exclude={"metadata"})
        if isinstance(cast("object", action), Mapping):
            return dict(action)
        raise ConfigurationError(
            f"An action must be an AtariAction, a CallToolAction or a mapping, not {type(action).__name__}."
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[AtariObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = AtariObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> AtariState:
        return AtariState(**payload)
