"""The typed client: `CodeAction` in, `CodeObservation` out."""

from __future__ import annotations

from typing import Any

from coding_env.models import CodeAction, CodeObservation, CodeState
from openenv_trl.client import EnvClient
from openenv_trl.types import StepResult


class CodingEnv(EnvClient[CodeAction, CodeObservation, CodeState]):
    r"""One session on a coding server, ours or the public package's.

    Example:
        >>> with CodingEnv("http://localhost:8000").sync() as env:
        ...     env.reset(seed=1)
        ...     print(env.step(CodeAction(code="x = 20\nx + 1")).observation.stdout)
    """

    def _step_payload(self, action: CodeAction) -> dict[str, Any]:
        return {"code": action.code}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CodeObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        # The public package's servers may name done and reward in the observation too.
        fields: dict[str, Any] = {**payload["observation"], "done": done, "reward": reward}
        observation = CodeObservation.model_validate(fields)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> CodeState:
        return CodeState(**payload)
