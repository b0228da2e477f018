"""The typed client: `AtariAction` in, `AtariObservation` out."""

from __future__ import annotations

from typing import Any

from atari_env.models import AtariAction, AtariObservation, AtariState
from openenv_trl.client import EnvClient
from openenv_trl.types import StepResult


class AtariEnv(EnvClient[AtariAction, AtariObservation, AtariState]):
    """One session on a server of an Atari game, ours or the public package's.

    Example:
        >>> with AtariEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         result = env.step(AtariAction(action_id=2))
        ...     print(result.observation.pixels().shape)
    """

    def _step_payload(self, action: AtariAction) -> dict[str, Any]:
        return action.model_dump(exclude={"metadata"})

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[AtariObservation]:
        done, reward = bool(payload.get("done", False)), payload.get("reward")
        observation = AtariObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> AtariState:
        return AtariState(**payload)
