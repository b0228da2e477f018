"""From trajectories to the dict that TRL takes from a ``rollout_func``, checked where TRL does not check.

TRL pads a mask that is too short with ones, and so trains on what the environment wrote; it reads ``env_mask`` only
under that name, and needs at least one token a row. Every row here has ids, mask and log-probs of one length, or an
error is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openenv_trl.errors import ProtocolError
from openenv_trl.rollout import Trajectory


def trajectories_to_rows(trajectories: Sequence[Trajectory], *, fallback_id: int) -> dict[str, Any]:
    """The columns of a generation batch.

    A failed trajectory becomes one token with mask 0: it adds nothing to the loss, and its reward is None.

    Args:
        trajectories: One a prompt, in the prompts' order.
        fallback_id: The token that stands where a failed trajectory has none, such as the end-of-sequence id.

    Returns:
        ``prompt_ids``, ``completion_ids``, ``env_mask``: lists of lists of int. ``logprobs``: lists of float, or None
        where the backend gives none. ``trajectory``: the trajectories.

    Raises:
        ProtocolError: A trajectory whose ids, mask and log-probs differ in length.
    """
    rows = [trajectory.as_row(fallback_id) for trajectory in trajectories]
    have_logprobs = any(
        row.logprobs is not None for row, t in zip(rows, trajectories, strict=True) if not t.end_reason.is_failure
    )
    logprobs: list[list[float]] = []
    for row in rows:
        logps = [0.0] * len(row.completion_ids) if row.logprobs is None else row.logprobs
        if not len(row.completion_ids) == len(row.mask) == len(logps):
            raise ProtocolError(
                f"A trajectory has {len(row.completion_ids)} completion ids, {len(row.mask)} mask values and "
                f"{len(logps)} log-probs; they must be as many. This is a fault of the policy that made it."
            )
        logprobs.append(logps)
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.completion_ids for row in rows],
        "env_mask": [row.mask for row in rows],
        "logprobs": logprobs if have_logprobs else None,
        "trajectory": list(trajectories),
    }
