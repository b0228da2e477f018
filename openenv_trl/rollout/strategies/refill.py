"""Another episode in place of one that failed for good."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from openenv_trl.rollout.strategies.retry import WORTH_RETRYING, failures_only
from openenv_trl.rollout.trajectory import EndReason


class NoRefill(BaseModel):
    """A group whose episodes failed stays as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["none"] = "none"


class RefillGroups(BaseModel):
    """An episode that failed after all its attempts is replaced by a fresh one of the same task.

    Unlike another attempt it has luck of its own, where the episodes of its group have (see
    `openenv_trl.rollout.roster.fresh_task`), and its own ``episode_timeout_s``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["fresh"] = "fresh"
    max_episodes: int = Field(default=2, ge=1)
    """Fresh episodes of one group at most (of one task, where it has no group): a task that always fails must not
    hold the batch."""
    reasons: frozenset[EndReason] = WORTH_RETRYING | {EndReason.GENERATION_FAILED}
    """Failures that are replaced. By default those of single sessions and single generations."""

    @field_validator("reasons")
    @classmethod
    def _can_be_followed(cls, reasons: frozenset[EndReason]) -> frozenset[EndReason]:
        return failures_only(reasons)
