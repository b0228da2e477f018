"""The split rule: what of an observation stands where in a frame.

``reward`` and ``done`` move out of the observation; ``metadata`` stays inside it and is repeated beside it
where it is not empty. A reward that JSON has no word for goes out as null, and the metadata say what it was: nobody
need take a lost reward for none.
"""

from __future__ import annotations

import math
from typing import Any, cast

from openenv_trl.plain_numbers import plain_number
from openenv_trl.types import Observation, StepResult
from openenv_trl.wire.model_values import dump_model

REWARD_NOT_FINITE = "reward_not_finite"
"""The key of the metadata under which a reward that is no finite number is told: "nan", "inf" or "-inf"."""

OTHERS_WAIT = "others_wait"
"""The key of the metadata by which a reset says that others wait for what this session does, until its episode ends."""

_MOVED_OUT = {"reward", "done"}


def serialize_observation(observation: Observation) -> dict[str, Any]:
    """Return the ``data`` object of an observation frame.

    Raises:
        TypeError: A field's own serializer raised; the text names the field.
    """
    fields = dump_model(observation, exclude=_MOVED_OUT, at="observation")
    reward = sent_reward(observation)
    metadata: Any = fields.get("metadata", observation.metadata)
    if isinstance(reward, float) and not math.isfinite(reward):
        metadata = fields["metadata"] = {**metadata, REWARD_NOT_FINITE: str(float(reward))}
    data: dict[str, Any] = {"observation": fields, "reward": reward, "done": observation.done}
    if metadata:
        data["metadata"] = metadata
    return data


def sent_reward(observation: Observation) -> Any:
    """The reward as it travels: a number of another library's, which a class of observations may allow, as Python's."""
    plain = plain_number(observation.reward)
    return observation.reward if plain is None else plain


def has_finite_reward(observation: Observation) -> bool:
    """Whether the reward survives JSON: NaN and the infinities become null on the wire."""
    reward = sent_reward(observation)
    return not isinstance(reward, float) or math.isfinite(reward)


def lost_reward(metadata: Any) -> str | None:
    """Return what a reward was that arrived as null: "nan", "inf" or "-inf"; None where it was none."""
    if not isinstance(metadata, dict):
        return None
    told = cast("dict[str, Any]", metadata).get(REWARD_NOT_FINITE)
    return told if isinstance(told, str) else None


def says_that_others_wait(metadata: Any) -> bool:
    """Whether the metadata of a reset's observation say that others wait for what its session does."""
    return isinstance(metadata, dict) and bool(cast("dict[str, Any]", metadata).get(OTHERS_WAIT))


def parse_step_result(data: dict[str, Any]) -> StepResult[dict[str, Any]]:
    """Return a result whose observation is a dict, from the ``data`` object of an observation frame."""
    return StepResult(
        observation=data.get("observation") or {},
        reward=data.get("reward"),
        done=bool(data.get("done", False)),
        metadata=data.get("metadata"),
    )
