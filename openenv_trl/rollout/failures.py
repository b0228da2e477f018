"""From what went wrong in an attempt to the reason that its episode ends with."""

from __future__ import annotations

from openenv_trl.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    ProtocolError,
    SessionCapacityError,
    SessionCreationError,
)
from openenv_trl.rollout.trajectory import EndReason

FINAL = frozenset({EndReason.EPISODE_TIMEOUT, EndReason.BATCH_TIMEOUT, EndReason.GENERATION_FAILED})
"""Failures after which no other session is tried: there is no time left, or it was not the environment's fault."""


class EpisodeFailed(Exception):
    """An attempt at an episode failed, for a reason; never leaves the engine."""

    def __init__(self, reason: EndReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def failure_of(error: Exception, phase: str) -> EpisodeFailed:
    """Name what an environment's call raised.

    Args:
        error: What was raised.
        phase: The call: "connect", "reset" or "step".
    """
    return EpisodeFailed(_reason(error, phase), f"{phase}: {str(error) or type(error).__name__}")


def _reason(error: Exception, phase: str) -> EndReason:
    if phase == "connect":
        starved = isinstance(error, (SessionCapacityError, TimeoutError))
        return EndReason.CAPACITY if starved else EndReason.CONNECT_FAILED
    if isinstance(error, (DeadlineExceededError, TimeoutError)):
        return EndReason.RESET_TIMEOUT if phase == "reset" else EndReason.STEP_TIMEOUT
    if isinstance(error, ProtocolError):
        return EndReason.PROTOCOL_ERROR
    if isinstance(error, (ConnectionFailedError, SessionCreationError)):
        return EndReason.CONNECT_FAILED
    if isinstance(error, (ConnectionError, EOFError)):
        return EndReason.SESSION_LOST
    if isinstance(error, EnvironmentExecutionError):
        return EndReason.ENVIRONMENT_ERROR
    # Sessions may be anyone's code, and an environment in the same process raises what it likes.
    return EndReason.ENVIRONMENT_ERROR
