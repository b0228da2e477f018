"""From the trajectories of a group to the rows that ``AsyncGRPOTrainer`` takes, checked where it checks nothing.

A row is the whole conversation as it was sampled: prompt and completion ids, a mask with 1 where the model sampled the
id, and the sampler's log-probs of exactly those ids (0.0 elsewhere). Nothing is rendered again, so nothing drifts, and
a conversation is one row.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openenv_trl.errors import ConfigurationError, ProtocolError
from openenv_trl.rollout import Trajectory


def oldest_version(trajectories: Sequence[Trajectory]) -> int | None:
    """The oldest weights that sampled a token of these; None where that is not known."""
    versions = [version for trajectory in trajectories for _, version in trajectory.versions]
    return min(versions) if versions else None


def rollout_samples(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[float | None],
    metrics: Sequence[Mapping[str, float]],
    *,
    model_version: int,
    group: int,
) -> list[Any]:
    """The rows of a group: one for each episode with an advantage.

    Args:
        trajectories: The group's.
        advantages: One an episode; None leaves its row out.
        metrics: What TRL logs of each row.
        model_version: The oldest weights of the group: TRL measures the row's age by it.
        group: The group's number: TRL counts prompts by it, and packs rows with one number together.

    Raises:
        ConfigurationError: The policy gives no log-probs, or messages in the place of ids.
        ProtocolError: A trajectory whose ids, mask and log-probs differ in length, or whose log-probs are no finite
            numbers up to 0.
    """
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    now = time.time()  # TRL subtracts it from its own time.time()
    return [
        RolloutSample(
            prompt=[dict(message) for message in trajectory.task.prompt],
            completion=trajectory.messages[len(trajectory.task.prompt) :],
            **_arrays(trajectory),
            advantage=advantage,
            model_version=model_version,
            group_id=group,
            metrics=dict(each),
            enqueued_at=now,
        )
        for trajectory, advantage, each in zip(trajectories, advantages, metrics, strict=True)
        if advantage is not None
    ]


def _arrays(trajectory: Trajectory) -> dict[str, Any]:
    prompt, ids, mask, logprobs = (
        trajectory.prompt_ids,
        trajectory.completion_ids,
        trajectory.mask,
        trajectory.logprobs,
    )
    if not trajectory.token_exact:
        raise ConfigurationError(
            "The policy gives messages and no token ids, which cannot be trained on. Use one that takes and gives ids, "
            "such as vLLM's /v1/completions or SGLang's /generate."
        )
    if logprobs is None:
        raise ConfigurationError(
            "The policy gives no log-probs, which AsyncGRPO's loss needs: ask the inference server for them (vLLM: "
            "start it with --logprobs-mode processed_logprobs)."
        )
    if not prompt or not ids or not len(ids) == len(mask) == len(logprobs):
        raise ProtocolError(
            f"A trajectory has {len(prompt)} prompt ids, {len(ids)} completion ids, {len(mask)} mask values and "
            f"{len(logprobs)} log-probs; the last three must be as many, and none of them 0. This is a fault of the "
            "policy that made it."
        )
    old = np.asarray([0.0] * len(prompt) + list(logprobs), dtype=np.float32)
    if not np.isfinite(old).all() or (old > 1e-4).any():
        raise ProtocolError(
            "The policy gave log-probs that are no finite numbers up to 0: training on them would spoil the weights. "
            "See that the inference server gives the processed log-probs of the tokens that it sampled."
        )
    return {
        "input_ids": np.asarray([*prompt, *ids], dtype=np.int64),
        "completion_mask": np.asarray([0] * len(prompt) + list(mask), dtype=np.int64),
        "old_log_probs": np.minimum(old, np.float32(0.0)),
    }
