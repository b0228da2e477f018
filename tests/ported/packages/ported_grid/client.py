"""Its client."""

from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient

from .models import GridAction, GridObservation, GridState


class GridEnv(EnvClient[GridAction, GridObservation, GridState]):
    """Typed actions out, typed observations in."""

    def _step_payload(self, action: GridAction) -> dict[str, Any]:
        return {"move": action.move.value, "strides": action.strides}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[GridObservation]:
        shown = payload.get("observation", {})
        observation = GridObservation(
            position=shown["position"],
            goal=shown["goal"],
            message=shown.get("message", ""),
            done=payload.get("done", False),
            reward=payload.get("reward"),
        )
        return StepResult(observation=observation, reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload: dict[str, Any]) -> GridState:
        return GridState(**payload)
