"""The clients of the environments, typed as an environment's own client is."""

from __future__ import annotations

from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import State

from .models import ArrayObservation, EchoAction, EchoObservation, FrameAction, FrameObservation


class EchoClient(EnvClient[EchoAction, EchoObservation, State]):
    """Talks with the echo, and with those that wait."""

    def _step_payload(self, action: EchoAction) -> dict[str, Any]:
        return {"message": action.message}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[EchoObservation]:
        done, reward = payload.get("done", False), payload.get("reward")
        observation = EchoObservation(echo=payload["observation"]["echo"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


class FrameClient(EnvClient[FrameAction, Any, State]):
    """Plays the game, and sees lists of numbers."""

    def _step_payload(self, action: FrameAction) -> dict[str, Any]:
        return {"button": action.button}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Any]:
        observation = self._seen(payload["observation"]["pixels"])
        return StepResult(observation=observation, reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)

    def _seen(self, pixels: Any) -> Any:
        return FrameObservation(pixels=pixels)


class ArrayClient(FrameClient):
    """Plays the game, and sees arrays."""

    def _seen(self, pixels: Any) -> Any:
        import numpy

        return ArrayObservation(pixels=numpy.asarray(pixels, numpy.uint8))
