"""When to ask the policy: in whole batches of whatever sessions are ready, no session waiting for all.

`ReadyBatcher` decides; it has no clock and no task. `BatchedPolicy` is the shell that feeds it and calls the
policy.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class BatchSettings(BaseModel):
    """When a batch is sent to the policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_window_s: float = Field(default=0.02, ge=0)
    """Seconds that a ready episode waits for others to join its batch. Short beside a generation, long beside
    a fast step; no episode waits where all of them are ready."""
    max_batch_size: int = Field(default=1024, ge=1)
    """Prompts in one call of the policy. Lower it where memory is short."""
