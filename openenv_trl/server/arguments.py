"""What `create_app` and its kin are given, checked: each mistake is named at once, with what to change.

The rules are those of the public package's functions of the same names.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from openenv_trl.environment import Environment
from openenv_trl.errors import ConcurrencyConfigurationError, ConfigurationError
from openenv_trl.server.capacity import ConcurrencyConfig
from openenv_trl.server.hooks import class_behind
from openenv_trl.types import Action, Observation, ServerMode, State

logger = logging.getLogger("openenv_trl.server")


@dataclass(frozen=True)
class EnvironmentModels:
    """The classes of what travels, for the schemas.

    Attributes:
        action_cls: The action that a step takes.
        observation_cls: The observation that a step gives.
        state_cls: The state's class.
        reset_observation_cls: The observation that a reset gives.
    """

    action_cls: type[Action]
    observation_cls: type[Observation]
    state_cls: type[State]
    reset_observation_cls: type[Observation]


def concurrency_of(
    env: Callable[[], Environment[Any, Any, Any]], most: int | None, config: ConcurrencyConfig | None
) -> ConcurrencyConfig:
    """Return how many sessions there may be at once.

    Raises:
        TypeError: ``env`` is not a callable (an instance, most often).
        ConfigurationError: Two ways to say how many, too few, or more than the environment class allows.
    """
    if isinstance(cast("object", env), Environment) or not callable(env):
        name = type(cast("object", env)).__name__
        raise TypeError(
            f"env must be a callable that builds an environment, such as the class itself; got an instance of {name}. "
            "Each session needs an environment of its own."
        )
    if most is not None and config is not None:
        raise ConfigurationError("Give max_concurrent_envs or concurrency_config, not both.")
    if most is not None and most < 1:
        raise ConfigurationError(f"max_concurrent_envs={most}: a server needs room for one session at least.")
    chosen = config or ConcurrencyConfig(max_concurrent_envs=most or 1)
    if chosen.max_concurrent_envs > 1:
        environment_class = class_behind(env) or _inspect(env)
        if not environment_class.SUPPORTS_CONCURRENT_SESSIONS:
            raise ConcurrencyConfigurationError(environment_class.__name__, chosen.max_concurrent_envs)
    return chosen


def mode_of(mode: str | ServerMode | None) -> ServerMode:
    """Return the mode: as given, or the environment variable OPENENV_MODE's, or simulation.

    Raises:
        ConfigurationError: There is no such mode.
    """
    chosen = str(getattr(mode, "value", mode) or os.environ.get("OPENENV_MODE") or "simulation").lower()
    try:
        return ServerMode(chosen)
    except ValueError:
        raise ConfigurationError(f"mode={chosen!r} is unknown: it must be 'simulation' or 'production'.") from None


def wants_web_page(setting: bool | None) -> bool:
    """Whether there is a debug page: as set, or as the public package's variable ENABLE_WEB_INTERFACE says."""
    if setting is not None:
        return setting
    return os.environ.get("ENABLE_WEB_INTERFACE", "").strip().lower() in ("true", "1", "yes")


def warn_of_gradio(**given: bool) -> None:
    """Tell the log of arguments for the public package's own page, which have no effect here."""
    names = [name for name, is_given in given.items() if is_given]
    if names:
        text = "create_app: no effect of %s: the debug page is not made with Gradio. See Environment.render_web."
        logger.warning(text, ", ".join(names))


def _inspect(env: Callable[[], Environment[Any, Any, Any]]) -> type[Environment[Any, Any, Any]]:
    """Build one environment to see its class: a function does not tell what it returns."""
    environment = env()
    environment.close()
    return type(environment)
