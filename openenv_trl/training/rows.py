"""From trajectories to the dict that TRL takes from a ``rollout_func``, checked where TRL does not check.

TRL pads a mask that is too short with ones, and so trains on what the environment wrote; it reads ``env_mask`` only
under that name, and needs at least one token a row. Every row here has ids, mask and log-probs of one length, or an
error is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from openenv_trl.errors import ConfigurationError, ProtocolError
from openenv_trl.rollout import Trajectory

logger = logging.getLogger("openenv_trl.training")


def trajectories_to_rows(
    trajectories: Sequence[Trajectory], *, fallback_id: int, masked: bool = False, need_logprobs: bool = False
) -> dict[str, Any]:
    """The columns of a generation batch.

    A failed trajectory becomes one token with mask 0: it adds nothing to the loss, and its reward is None.

    Args:
        trajectories: One a prompt, in the prompts' order.
        fallback_id: The token that stands where a failed trajectory has none, such as the end-of-sequence id.
        masked: Mask all rows: nothing of the batch is to be learned from.
        need_logprobs: Give log-probs even where no trajectory has any, as a trainer that generates with vLLM reads
            them; those of masked tokens are 0.0 and of no effect.

    Returns:
        ``prompt_ids``, ``completion_ids``, ``env_mask``: lists of lists of int. ``logprobs``: lists of float, or None
        where the backend gives none. ``trajectory``: the trajectories.

    Raises:
        ConfigurationError: A trajectory was played in messages, not token ids: there is nothing to train on.
        ProtocolError: A trajectory whose ids, mask and log-probs differ in length, or hold what cannot be.
    """
    refuse_inexact(trajectories)
    rows = [trajectory.as_row(fallback_id) for trajectory in trajectories]
    have_logprobs = need_logprobs or any(
        row.logprobs is not None for row, t in zip(rows, trajectories, strict=True) if not t.end_reason.is_failure
    )
    logprobs = [[0.0] * len(row.completion_ids) if row.logprobs is None else row.logprobs for row in rows]
    # A made-up log-prob on a trained token would pass for the sampler's, and falsify the importance ratio of its row.
    unknown = [have_logprobs and row.logprobs is None and any(row.mask) for row in rows]
    if any(unknown) and not masked:
        logger.warning(
            "%d of %d episodes came without the sampler's log-probs, which this trainer corrects by; they are left out "
            "of the update. Have the policy give log-probs for every completion.",
            sum(unknown),
            len(rows),
        )
    columns: dict[str, Any] = {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.completion_ids for row in rows],
        "env_mask": [
            [0] * len(row.mask) if masked or left_out else row.mask for row, left_out in zip(rows, unknown, strict=True)
        ],
        "logprobs": logprobs if have_logprobs else None,
        "trajectory": list(trajectories),
    }
    check_columns(columns, len(trajectories))
    return columns


def refuse_inexact(trajectories: Sequence[Trajectory]) -> None:
    """Refuse trajectories whose tokens are not known.

    Raises:
        ConfigurationError: There is one.
    """
    count = sum(not trajectory.token_exact for trajectory in trajectories)
    if count:
        raise ConfigurationError(
            f"{count} of {len(trajectories)} trajectories were played by a policy that takes and gives messages "
            "(ChatPolicy): which tokens it sampled is not known, so nothing can be trained on them. Use a policy of "
            "token ids: the trainer's own generation, VllmPolicy, SglangPolicy, LlamaCppPolicy or TransformersPolicy."
        )


def check_columns(columns: dict[str, Any], rows: int) -> None:
    """Check what a ``rollout_func`` gives, for all that TRL takes without a word, or fails at far away.

    Args:
        columns: What it gives.
        rows: The number of prompts that it was given.

    Raises:
        ProtocolError: A column is missing, is no list (TRL gives anything else to every row whole), has too few or too
            many rows; or a row is empty, or its ids, mask and log-probs differ in length, or its mask is not of 0 and
            1.
    """
    needed = ("prompt_ids", "completion_ids", "env_mask", "logprobs")
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ProtocolError(f"The rollout gave no {missing}: it must give {list(needed)}, and may give more.")
    for name, column in columns.items():
        if name == "logprobs" and column is None:
            continue
        if not isinstance(column, list) or len(cast("list[Any]", column)) != rows:
            raise ProtocolError(f"The rollout's '{name}' must be a list with one entry for each of {rows} prompts.")
    logprobs = columns["logprobs"]
    for row, (prompt, ids, mask) in enumerate(
        zip(columns["prompt_ids"], columns["completion_ids"], columns["env_mask"], strict=True)
    ):
        lengths = {"completion_ids": len(ids), "env_mask": len(mask)}
        if logprobs is not None:
            lengths["logprobs"] = len(logprobs[row])
        if len(set(lengths.values())) > 1:
            raise ProtocolError(
                f"Row {row} of a rollout has {lengths}; they must be as many. This is a fault of the policy that made "
                "it."
            )
        if not ids or not prompt:
            raise ProtocolError(f"Row {row} of a rollout has no token: a masked one must stand in.")
        if not {*mask} <= {0, 1}:
            raise ProtocolError(f"Row {row} of a rollout has a mask of {sorted({*mask})}; it must be of 0 and 1.")
