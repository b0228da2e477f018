"""Its client."""

from openenv.core import EnvClient, State
from openenv.core.client_types import StepResult

from .models import TextAction, TextObservation


class TextEnv(EnvClient[TextAction, TextObservation, State]):
    """Says what the player says."""

    def _step_payload(self, action: TextAction) -> dict:
        return action.model_dump(exclude={"metadata"})

    def _parse_result(self, payload: dict) -> StepResult[TextObservation]:
        observation = TextObservation(**payload["observation"], done=payload["done"], reward=payload["reward"])
        return StepResult(observation=observation, reward=payload["reward"], done=payload["done"])

    def _parse_state(self, payload: dict) -> State:
        return State(**payload)
