"""The typed client: `OpenSpielAction` in, `OpenSpielObservation` out."""

from __future__ import annotations

from typing import Any

from openenv_trl.client import EnvClient
from openenv_trl.types import StepResult
from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState


class OpenSpielEnv(EnvClient[OpenSpielAction, OpenSpielObservation, OpenSpielState]):
    """One session on a server of an OpenSpiel game, ours or the public package's.

    Example:
        >>> with OpenSpielEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         result = env.step(OpenSpielAction(action_id=result.observation.legal_actions[0]))
        ...     print(result.observation.message, result.reward)
    """

    def _step_payload(self, action: OpenSpielAction) -> dict[str, Any]:
        return {"action_id": action.action_id, "game_name": action.game_name, "game_params": action.game_params}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[OpenSpielObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = OpenSpielObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> OpenSpielState:
        return OpenSpielState(**payload)
