"""How episodes are played, and by what kind of sandbox: the settings of a server, and of a single episode."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from coding_env.sandbox.launcher import Bubblewrap, Executor
from coding_env.sandbox.layers import Level
from coding_env.sandbox.limits import Limits
from openenv_trl.errors import ConfigurationError

logger = logging.getLogger(__name__)

RewardKind = Literal["tests", "rules"]
_SMOLAGENTS_MB = 128  # it takes 70 by itself


class EpisodeSettings(BaseModel):
    """How an episode is played; ``reset`` may change each of them for one episode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reward: RewardKind = "tests"
    """"tests": the share of the hidden tests that pass, when the episode ends; 0 until then. "rules": after each run,
    by what the code looks like, as the public package has it."""
    max_steps: int | None = Field(default=None, ge=1)
    """Steps of an episode; the last one ends it, and hidden tests are run. None for no limit."""
    max_attempts: int = Field(default=1, ge=1)
    """How often ``run_tests`` may be called. The last time, or the first that passes all, ends the episode. Once,
    since more would let an agent guess."""
    run_timeout_s: float = Field(default=10.0, gt=0, le=3600)
    """Seconds that one run may take."""
    tests_timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """Seconds that all hidden tests together may take."""
    test_timeout_s: float = Field(default=5.0, gt=0, le=3600)
    """Seconds that a solution may take over each call that a test makes to it."""


class SandboxSettings(BaseModel):
    """What a server's sessions run in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limits: Limits = Limits()
    """What each session may use."""
    packages: tuple[str, ...] = ()
    """Folders of packages that code may import from, beside the standard library."""
    executor: Executor = "python"
    """What runs cells: Python, or smolagents' interpreter, which is what the public environment has: for comparison
    with runs on that. It is no border, and is confined as Python is; hidden tests run in Python all the same."""
    imports: tuple[str, ...] = ()
    """Modules that smolagents lets code import, beside those that it does by itself."""
    bubblewrap: Bubblewrap = "auto"
    """Whether the program bubblewrap starts the sandbox: where the server may not make namespaces by itself, or always,
    or never."""
    warm_sessions: int = Field(default=4, ge=0)
    """Interpreters that are kept ready. Four, which a burst of resets uses up in the time that as many more take."""
    min_level: Level = Level.NONE
    """The least that the sandbox must be worth, or the server does not start. None is asked for by default: a laptop
    without namespaces can still try things out, with a warning."""
    concurrent_gradings: int | None = Field(default=None, ge=1)
    """How many solutions are judged at once; others wait for their turn. None for 16, or fewer where a quarter of the
    container's processes is too little for those."""
    disabled_layers: tuple[str, ...] = ()
    """Layers of the sandbox that are left out, to try what is left without them."""

    @model_validator(mode="after")
    def _has_room(self) -> SandboxSettings:
        if self.executor == "smolagents" and self.limits.memory_mb < _SMOLAGENTS_MB:
            raise ValueError(f"memory_mb must be at least {_SMOLAGENTS_MB} with the executor smolagents")
        if self.limits.session_memory_mb < self.limits.memory_mb:
            raise ValueError(
                f"session_memory_mb ({self.limits.session_memory_mb}) must be at least memory_mb "
                f"({self.limits.memory_mb}): a session has all its processes' memory"
            )
        if self.imports and self.executor != "smolagents":
            raise ValueError("imports are for the executor smolagents only; Python imports what is there, see packages")
        missing = [folder for folder in self.packages if not os.path.isdir(folder)]
        if missing:
            raise ValueError(f"packages names {', '.join(map(repr, missing))}, which is no folder here")
        return self

    @field_validator("min_level", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return Level[value.upper()]
            except KeyError:
                names = ", ".join(level.name.lower() for level in Level)
                raise ValueError(f"must be one of {names}") from None
        return value


_EPISODE_VARIABLES = {
    "CODING_REWARD": "reward",
    "CODING_MAX_STEPS": "max_steps",
    "CODING_MAX_ATTEMPTS": "max_attempts",
    "CODING_RUN_TIMEOUT_S": "run_timeout_s",
    "CODING_TESTS_TIMEOUT_S": "tests_timeout_s",
    "CODING_TEST_TIMEOUT_S": "test_timeout_s",
}
_LIMIT_VARIABLES = {
    "CODING_CPU_S": "cpu_s",
    "CODING_MEMORY_MB": "memory_mb",
    "CODING_SESSION_MEMORY_MB": "session_memory_mb",
    "CODING_WORKSPACE_MB": "workspace_mb",
    "CODING_FILE_MB": "file_mb",
    "CODING_OPEN_FILES": "open_files",
    "CODING_PROCESSES": "processes",
    "CODING_OUTPUT_BYTES": "output_bytes",
}
_SANDBOX_VARIABLES = {
    "CODING_WARM_SESSIONS": "warm_sessions",
    "CODING_MIN_LEVEL": "min_level",
    "CODING_EXECUTOR": "executor",
    "CODING_BUBBLEWRAP": "bubblewrap",
    "CODING_CONCURRENT_GRADINGS": "concurrent_gradings",
}
_LIST_VARIABLES = {
    "CODING_PACKAGES": ("packages", ":"),
    "CODING_IMPORTS": ("imports", ","),
    "CODING_DISABLED_LAYERS": ("disabled_layers", ","),
}


def episode_settings(values: Mapping[str, Any], base: EpisodeSettings) -> EpisodeSettings:
    """Settings from their values by name; None leaves one as it is in ``base``.

    Raises:
        ConfigurationError: A value that cannot be used; the message names the setting.
    """
    given = {name: value for name, value in values.items() if value is not None}
    return base if not given else _checked(EpisodeSettings, {**base.model_dump(), **given})


def settings_from_variables(variables: Mapping[str, str]) -> tuple[EpisodeSettings, SandboxSettings]:
    """The settings that environment variables give. One that begins as ours do and is none is warned of.

    Raises:
        ConfigurationError: A value that cannot be used; the message names the setting.
    """
    _warn_of_unknown(variables)
    episode = _checked(EpisodeSettings, _picked(variables, _EPISODE_VARIABLES))
    sandbox: dict[str, Any] = _picked(variables, _SANDBOX_VARIABLES)
    for name, (setting, separator) in _LIST_VARIABLES.items():
        if variables.get(name):
            sandbox[setting] = tuple(part.strip() for part in variables[name].split(separator) if part.strip())
    sandbox["limits"] = _checked(Limits, _picked(variables, _LIMIT_VARIABLES))
    return episode, _checked(SandboxSettings, sandbox)


def _warn_of_unknown(variables: Mapping[str, str]) -> None:
    known = [*_EPISODE_VARIABLES, *_LIMIT_VARIABLES, *_SANDBOX_VARIABLES, *_LIST_VARIABLES]
    for name in sorted(set(variables) - set(known)):
        if name.startswith("CODING_"):
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"Did you mean {close[0]}?" if close else f"There are {', '.join(sorted(known))}."
            logger.warning("%s is no setting of the coding environment, and changes nothing. %s", name, meant)


def _picked(variables: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    return {setting: variables[name] for name, setting in names.items() if variables.get(name)}


def _checked(kind: Any, values: Mapping[str, Any]) -> Any:
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigurationError(f"The coding environment's settings cannot be used: {wrong}.") from error
