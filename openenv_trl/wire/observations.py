"""The split rule: what of an observation stands where in a frame.

``reward`` and ``done`` move out of the observation; ``metadata`` stays inside it and is repeated beside it
where it is not empty.
"""

from __future__ import annotations

import math
from typing import Any

from openenv_trl.types import Observation, StepResult

_MOVED_OUT = {"reward", "done"}


def serialize_observation(observation: Observation) -> dict[str, Any]:
    """Return the ``data`` object of an observation frame."""
    data: dict[str, Any] = {
        "observation": observation.model_dump(exclude=_MOVED_OUT),
        "reward": observation.reward,
        "done": observation.done,
    }
    if observation.metadata:
        data["metadata"] = observation.metadata
    return data


def has_finite_reward(observation: Observation) -> bool:
    """Whether the reward survives JSON: NaN and the infinities become null on the wire."""
    reward = observation.reward
    return not isinstance(reward, float) or math.isfinite(reward)


def parse_step_result(data: dict[str, Any]) -> StepResult[dict[str, Any]]:
    """Return a result whose observation is a dict, from the ``data`` object of an observation frame."""
    return StepResult(
        observation=data.get("observation") or {},
        reward=data.get("reward"),
        done=bool(data.get("done", False)),
        metadata=data.get("metadata"),
    )
