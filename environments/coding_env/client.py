"""The typed client: `CodeAction` or a tool's call in, `CodeObservation` out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from coding_env.models import CodeAction, CodeObservation, CodeState
from openenv_trl.client import EnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import CallToolAction, StepResult


class CodingEnv(EnvClient[CodeAction | CallToolAction | Mapping[str, Any], CodeObservation, CodeState]):
    r"""One session on a coding server, ours or the public package's.

    Example:
        >>> with CodingEnv("http://localhost:8000").sync() as env:
        ...     env.reset(seed=1)
        ...     print(env.step(CodeAction(code="x = 20\nx + 1")).observation.stdout)
    """

    async def call_tool(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, /, **named: Any
    ) -> StepResult[CodeObservation]:
        """Take a step by a tool, as ``step(CallToolAction(...))`` does: reward and end are in what it returns.

        Args:
            tool_name: The tool.
            arguments: Its arguments, as a mapping.
            named: Its arguments, by name.

        Raises:
            OpenEnvError: As `EnvClient.step`.
        """
        return await self.step(CallToolAction(tool_name=tool_name, arguments={**(arguments or {}), **named}))

    def _step_payload(self, action: CodeAction | CallToolAction | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(action, CodeAction):
            return {"code": action.code}
        if isinstance(action, CallToolAction):
            return action.model_dump(exclude={"metadata"})
        if isinstance(cast("object", action), Mapping):
            return dict(action)
        raise ConfigurationError(
            f"An action must be a CodeAction, a CallToolAction or a mapping, not {type(action).__name__}."
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CodeObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        # The public package's servers may name done and reward in the observation too.
        fields: dict[str, Any] = {**payload["observation"], "done": done, "reward": reward}
        observation = CodeObservation.model_validate(fields)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> CodeState:
        return CodeState(**payload)
