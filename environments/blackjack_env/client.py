"""The typed client: `BlackjackAction` in, `BlackjackObservation` out."""

from __future__ import annotations

from typing import Any

from blackjack_env.models import BlackjackAction, BlackjackObservation, BlackjackState
from openenv_trl.client import EnvClient
from openenv_trl.types import StepResult


class BlackjackEnv(EnvClient[BlackjackAction, BlackjackObservation, BlackjackState]):
    """One session on a blackjack server.

    Example:
        >>> with BlackjackEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         move = "hit" if result.observation.player_sum < 17 else "stand"
        ...         result = env.step(BlackjackAction(move=move))
        ...     print(result.observation.message)
    """

    def _step_payload(self, action: BlackjackAction) -> dict[str, Any]:
        return {"move": action.move}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[BlackjackObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = BlackjackObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> BlackjackState:
        return BlackjackState(**payload)
