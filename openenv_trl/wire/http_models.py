"""What travels over the HTTP routes, as pydantic models. Names and fields as in the public package.

Requests are checked by them. Responses are written without them; the models are for whoever reads one.

Source: section "Types" of the OpenEnv wire, version 0.10.0.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_MOST_CHARACTERS = 255  # of an id


class HealthStatus(str, Enum):
    """How a server does."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"


class BaseMessage(BaseModel):
    """A message without fields that nobody knows."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, defer_build=True)


class ResetRequest(BaseModel):
    """The body of ``POST /reset``. Further keys are arguments of the environment's ``reset``."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=_MOST_CHARACTERS)


class StepRequest(BaseModel):
    """The body of ``POST /step``. Further keys are arguments of the environment's ``step``."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    action: dict[str, Any]
    timeout_s: float | None = Field(default=None, gt=0)
    """Seconds that the step may take."""
    request_id: str | None = Field(default=None, max_length=_MOST_CHARACTERS)


class ResetResponse(BaseMessage):
    """What ``POST /reset`` answers."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


class StepResponse(BaseMessage):
    """What ``POST /step`` answers."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


class SchemaResponse(BaseMessage):
    """What ``GET /schema`` answers: JSON Schemas."""

    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]
    reset_observation: dict[str, Any] | None = None


class HealthResponse(BaseMessage):
    """What ``GET /health`` answers."""

    status: HealthStatus = HealthStatus.HEALTHY


class ListTasksRequest(BaseMessage):
    """The body of ``POST /{environment}/tasks``."""

    split: str


class NumTasksRequest(BaseMessage):
    """The body of ``POST /{environment}/num_tasks``."""

    split: str


class GetTaskRequest(BaseMessage):
    """The body of ``POST /{environment}/task``."""

    split: str
    index: int


class GetTaskRangeRequest(BaseMessage):
    """The body of ``POST /{environment}/task_range``: from ``start`` up to, but not including, ``stop``."""

    split: str
    start: int | None = None
    stop: int | None = None


class CodeExecResult(BaseMessage):
    """What running a piece of code brought."""

    stdout: str
    stderr: str
    exit_code: int
