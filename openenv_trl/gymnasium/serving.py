"""From the name of a Gymnasium environment to the application that serves it, for code and for command lines."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI

from openenv_trl.errors import ConfigurationError
from openenv_trl.gymnasium.environment import GymnasiumEnvironment
from openenv_trl.gymnasium.models import GymnasiumState
from openenv_trl.gymnasium.recipe import Makeable
from openenv_trl.server import create_app

_MOST_SESSIONS = 1024


def gymnasium_app(env: Makeable, *, max_concurrent_envs: int | None = None, **arguments: Any) -> FastAPI:
    """Return the application that serves a Gymnasium environment.

    Args:
        env: The environment, as `GymnasiumEnvironment.of` takes it.
        max_concurrent_envs: Sessions at once; by default what MAX_CONCURRENT_ENVS says, then 1024, or 1 for an
            environment that allows only one.
        **arguments: As `GymnasiumEnvironment.of`.

    Raises:
        ConfigurationError: The environment cannot be made.

    Example:
        >>> app = gymnasium_app("FrozenLake-v1", is_slippery=False, render_mode="ansi")
    """
    environment = GymnasiumEnvironment.of(env, **arguments)
    if max_concurrent_envs is None:
        most = _MOST_SESSIONS if environment.SUPPORTS_CONCURRENT_SESSIONS else 1
        max_concurrent_envs = int(os.environ.get("MAX_CONCURRENT_ENVS", most))
    return create_app(
        environment,
        environment.action_cls,
        environment.observation_cls,
        env_name=environment.env_id,
        max_concurrent_envs=max_concurrent_envs,
        state_cls=GymnasiumState,
    )


def app_for(target: str) -> FastAPI:
    """Return the application for what a command line names.

    Args:
        target: A registered name, with keyword arguments of ``gymnasium.make`` behind a question mark where it takes
            some: ``FrozenLake-v1?is_slippery=false&render_mode=ansi``. Values are JSON, or else text.

    Raises:
        ConfigurationError: The environment cannot be made so.
    """
    name, _, query = target.partition("?")
    if not name:
        raise ConfigurationError("Name the Gymnasium environment to serve, as in gymnasium:CartPole-v1.")
    try:
        arguments = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise ConfigurationError(
            f"'{query}' in '{target}' must be name=value, joined by '&' (in quotes on a command line): {error}."
        ) from error
    return gymnasium_app(name, **{key: _value(text) for key, text in arguments.items()})


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
