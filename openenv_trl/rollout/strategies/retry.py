"""Whether an episode that failed is tried again, and when: by the kind of failure, and never in the same session.

How often at most is a limit (`RolloutLimits.max_attempts`), how long the first pause is too (``retry_delay_s``).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.trajectory import EndReason

WORTH_RETRYING = frozenset(
    {
        EndReason.CREATION_FAILED,
        EndReason.RESET_TIMEOUT,
        EndReason.STEP_TIMEOUT,
        EndReason.SESSION_LOST,
        EndReason.ENVIRONMENT_ERROR,
        EndReason.INVALID_REWARD,
        EndReason.PROTOCOL_ERROR,
        EndReason.TOOL_FAILED,
    }
)
"""Failures of one session, which another may not have."""

OUT_OF_TIME = frozenset({EndReason.EPISODE_TIMEOUT, EndReason.BATCH_TIMEOUT, EndReason.STRAGGLER, EndReason.SURPLUS})
"""Ends for which no attempt can follow: the episode has no time left, or is not wanted."""


def failures_only(reasons: frozenset[EndReason]) -> frozenset[EndReason]:
    """The reasons, checked: an attempt can follow each.

    Raises:
        ValueError: One is no failure, or one after which there is no time.
    """
    wrong = sorted(reason.value for reason in reasons if not reason.is_failure or reason in OUT_OF_TIME)
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: no attempt can follow; name failures of an environment or the policy")
    return reasons


class NoRetry(BaseModel):
    """A failed episode is not tried again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["none"] = "none"

    def pause_s(self, reason: EndReason, attempts: int, limits: RolloutLimits, chance: float) -> float | None:
        """None: there is no further attempt."""
        del reason, attempts, limits, chance
        return None


class RetryWithBackOff(BaseModel):
    """A failed episode is tried again in a fresh session, after a pause that grows and that chance spreads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["back_off"] = "back_off"
    reasons: frozenset[EndReason] = WORTH_RETRYING
    """Failures after which there is another attempt. By default those of one session. Not ``connect_failed`` and
    ``capacity``: each comes only after the pool has tried every server for its whole patience. Not
    ``configuration_error``: another session is asked for the same, and cannot do it either. Not
    ``generation_failed`` and ``generate_timeout``: a generation has tries of its own, and another session does not
    change the policy."""
    attempts: dict[EndReason, int] = Field(default_factory=dict[EndReason, int])
    """Attempts at most where the last one failed so, for kinds of which fewer are enough (``step_timeout: 2``: each
    costs its whole deadline). `RolloutLimits.max_attempts` bounds them all."""
    longest_delay_s: float = Field(default=30.0, ge=0)
    """Seconds of a pause at most. The first is `RolloutLimits.retry_delay_s`, and each doubles the last."""
    jitter: float = Field(default=0.5, ge=0, le=1)
    """The part of a pause that is left to chance: episodes that failed together then do not come back together. 0.5
    makes a pause of 2 s one of 1 to 2 s."""

    @field_validator("reasons")
    @classmethod
    def _can_be_followed(cls, reasons: frozenset[EndReason]) -> frozenset[EndReason]:
        return failures_only(reasons)

    def pause_s(self, reason: EndReason, attempts: int, limits: RolloutLimits, chance: float) -> float | None:
        """Seconds before the next attempt; None where there is none.

        Args:
            reason: How the last attempt failed.
            attempts: How many there were.
            limits: Of every episode.
            chance: A random number from 0 to 1.
        """
        most = min(limits.max_attempts, self.attempts.get(reason, limits.max_attempts))
        if reason not in self.reasons or attempts >= most:
            return None
        pause = min(self.longest_delay_s, limits.retry_delay_s * 2.0 ** min(attempts - 1, 30))
        return pause * (1.0 - self.jitter * chance)
