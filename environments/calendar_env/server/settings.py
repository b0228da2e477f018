"""How a server's episodes are played: the settings of a server, which ``reset`` may change for one episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv_trl.errors import ConfigurationError


class CalendarSettings(BaseModel):
    """How episodes are played."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: Literal["all", "core"] = "all"
    """Which tools the agent has. "core" leaves out what no task needs, for models with little room in their prompt."""
    max_steps: int = Field(default=40, ge=1)
    """Calls after which the episode ends by itself and is judged as it stands. The longest solution of the tasks that
    come with the environment takes about a third of them."""
    reward: Literal["task", "public"] = "task"
    """"task": the outcome's score at the end, 0.0 before. "public": the public environment's rule, for every call."""


ENVIRONMENT_VARIABLES = {
    "CALENDAR_TOOLS": "tools",
    "CALENDAR_MAX_STEPS": "max_steps",
    "CALENDAR_REWARD": "reward",
}
"""The settings by the environment variables that set them."""


def settings_from(values: Mapping[str, Any], defaults: CalendarSettings) -> CalendarSettings:
    """Settings with some values in place of the defaults; None leaves the default.

    Raises:
        ConfigurationError: A value cannot be used.
    """
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return CalendarSettings.model_validate({**defaults.model_dump(), **given})
    except ValidationError as error:
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigurationError(f"The calendar cannot be played like that: {text}.") from error


def settings_from_variables(variables: Mapping[str, str]) -> CalendarSettings:
    """The settings that environment variables give; one that is unset or empty leaves the default.

    Raises:
        ConfigurationError: A value cannot be used.
    """
    given = {setting: variables.get(name) or None for name, setting in ENVIRONMENT_VARIABLES.items()}
    return settings_from(given, CalendarSettings())
