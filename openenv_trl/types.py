"""What an environment and its callers exchange. Field names and behaviour are those of the public OpenEnv package.

Source: the OpenEnv package, version 0.10.0 (``openenv.core.env_server.types``, ``openenv.core.client_types``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Scalar = int | float | bool

ObsT = TypeVar("ObsT")


class ServerMode(str, Enum):
    """Whom a server is for."""

    SIMULATION = "simulation"
    """A trainer: episodes are controlled over HTTP too."""
    PRODUCTION = "production"
    """An agent at work: the HTTP routes that control episodes are not there."""


class Action(BaseModel):
    """What an agent does in one step. Subclass it with your own fields; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, arbitrary_types_allowed=True)

    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything that travels with the action and is not part of it."""


class Observation(BaseModel):
    """What an environment shows after a reset or a step. Subclass it with your own fields."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, arbitrary_types_allowed=True)

    done: bool = False
    """Whether the episode has ended."""
    reward: bool | int | float | None = None
    """The reward of the step just taken; None where there is none (as after a reset)."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything beside the observation. ``metadata["truncated"]`` is true where a limit ended the episode. After a
    reset, ``metadata["others_wait"]`` is true where others wait for what the agent does: its session is then never
    kept idle in the middle of the episode."""


class State(BaseModel):
    """Where an episode stands. Extra fields are allowed."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)

    episode_id: str | None = None
    """The episode's name, as given to ``reset`` or made by the environment."""
    step_count: int = Field(default=0, ge=0)
    """Steps taken since the last reset."""


@dataclass
class StepResult(Generic[ObsT]):
    """What a client gets from ``reset`` and ``step``."""

    observation: ObsT
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


class Tool(BaseModel):
    """One tool that an environment offers its agent."""

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=dict)
    """JSON Schema of the arguments: an object schema."""


class EnvironmentMetadata(BaseModel):
    """What an environment says of itself."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    name: str
    description: str
    readme_content: str | None = None
    version: str | None = None
    author: str | None = None
    documentation_url: str | None = None


class ListToolsAction(Action):
    """The action that asks for the environment's tools, and is no move."""

    type: Literal["list_tools"] = "list_tools"


class CallToolAction(Action):
    """The action that calls one of an environment's tools."""

    type: Literal["call_tool"] = "call_tool"
    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
