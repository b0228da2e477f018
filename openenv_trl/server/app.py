"""`create_app`: an environment class becomes a server.

Argument names and rules are those of the public package's function of the same name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from starlette.routing import WebSocketRoute

from openenv_trl.environment import Environment
from openenv_trl.errors import ConcurrencyConfigurationError, ConfigurationError, EnvironmentFactoryError
from openenv_trl.server.capacity import CapacityLedger, ConcurrencyConfig
from openenv_trl.server.execution import SingleThread, WorkerThreads
from openenv_trl.server.hooks import class_behind, factory_name
from openenv_trl.server.host import SessionHost
from openenv_trl.server.websocket import WebSocketEndpoint
from openenv_trl.types import Action, EnvironmentMetadata, Observation, State
from openenv_trl.wire.codec import encode

logger = logging.getLogger("openenv_trl.server")

_MODES = ("simulation", "production")
_SPARE_THREADS = 4  # for the HTTP routes beside a full house of sessions


def create_app(
    env: Callable[[], Environment[Any, Any, Any]],
    action_cls: type[Action],
    observation_cls: type[Observation],
    env_name: str | None = None,
    max_concurrent_envs: int | None = None,
    concurrency_config: ConcurrencyConfig | None = None,
    gradio_builder: Callable[..., Any] | None = None,
    custom_tab_name: str = "Custom",
    custom_tab_primary: bool = False,
    show_default_tab: bool = True,
    title_override: str | None = None,
    state_cls: type[State] = State,
    *,
    mode: str | None = None,
    reset_observation_cls: type[Observation] | None = None,
) -> FastAPI:
    """Return an ASGI application that serves an environment: ``/ws``, ``/health``, ``/schema``, ``/metadata``.

    Args:
        env: Builds one environment: the class itself, or a function without arguments.
        action_cls: The action that a step takes.
        observation_cls: The observation that a step gives.
        env_name: The environment's name; the factory's own if None.
        max_concurrent_envs: Sessions at once; 1 if None. More than one needs a class that sets
            ``SUPPORTS_CONCURRENT_SESSIONS``.
        concurrency_config: The same as a config; give one or the other.
        gradio_builder: Of the public package's web page, which this server does not have: accepted, so that an
            application can be served as it is, and without effect. The same holds for the next four.
        custom_tab_name: See ``gradio_builder``.
        custom_tab_primary: See ``gradio_builder``.
        show_default_tab: See ``gradio_builder``.
        title_override: See ``gradio_builder``.
        state_cls: The state's class, for ``/schema``.
        mode: "simulation" or "production"; the environment variable OPENENV_MODE, then "simulation", if None.
        reset_observation_cls: The observation that a reset gives, where it is another one.

    Raises:
        TypeError: ``env`` is not a callable (an instance, most often).
        ConfigurationError: A setting that cannot work.

    Example:
        >>> app = create_app(EchoEnvironment, EchoAction, EchoObservation, max_concurrent_envs=64)
    """
    _warn_of_web_page(
        gradio_builder=gradio_builder is not None,
        custom_tab_name=custom_tab_name != "Custom",
        custom_tab_primary=custom_tab_primary,
        show_default_tab=not show_default_tab,
        title_override=title_override is not None,
    )
    config = _concurrency(env, max_concurrent_envs, concurrency_config)
    known = class_behind(env)
    # An unknown class may want a single thread. With one session at a time that costs nothing, so it gets it.
    single = known.REQUIRES_SINGLE_THREAD_EXECUTOR if known is not None else config.max_concurrent_envs == 1
    executor = SingleThread() if single else WorkerThreads(config.max_concurrent_envs + _SPARE_THREADS)
    host = SessionHost(env, action_cls, CapacityLedger(config.max_concurrent_envs), executor)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        host.shut_down()

    app = FastAPI(title="OpenEnv Environment HTTP API", version="1.0.0", lifespan=lifespan)
    app.state.session_host = host
    app.state.max_concurrent_envs = config.max_concurrent_envs
    app.state.env_name = env_name or factory_name(env)
    app.state.mode = _mode(mode)
    app.router.routes.append(WebSocketRoute("/ws", WebSocketEndpoint(host), name="ws"))
    _add_routes(app, host, (action_cls, observation_cls, state_cls, reset_observation_cls or observation_cls))
    return app


def _warn_of_web_page(**given: bool) -> None:
    names = [name for name, is_given in given.items() if is_given]
    if names:
        logger.warning("create_app: no effect yet of %s: this server has no web page.", ", ".join(names))


def _add_routes(
    app: FastAPI,
    host: SessionHost,
    models: tuple[type[Action], type[Observation], type[State], type[Observation]],
) -> None:
    action_cls, observation_cls, state_cls, reset_observation_cls = models
    schema: list[bytes] = []

    # A plain Response: FastAPI would import pydantic's version 1 to look at any other return type.
    async def health() -> Response:
        """Whether the server is up. No environment is touched."""
        return Response(b'{"status":"healthy"}', media_type="application/json")

    async def get_schema() -> Response:
        """The JSON Schemas of action, observation and state."""
        if not schema:
            schemas = {
                "action": action_cls.model_json_schema(),
                "observation": observation_cls.model_json_schema(),
                "state": state_cls.model_json_schema(),
                "reset_observation": reset_observation_cls.model_json_schema(),
            }
            schema.append(encode(schemas))
        return Response(schema[0], media_type="application/json")

    async def metadata() -> Response:
        """What the environment says of itself."""
        try:
            found: EnvironmentMetadata = await host.metadata()
        except EnvironmentFactoryError as error:
            return JSONResponse({"detail": str(error)}, status_code=500)
        return Response(encode(found.model_dump()), media_type="application/json")

    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/schema", get_schema, methods=["GET"])
    app.add_api_route("/metadata", metadata, methods=["GET"])


def _concurrency(
    env: Callable[[], Environment[Any, Any, Any]], most: int | None, config: ConcurrencyConfig | None
) -> ConcurrencyConfig:
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


def _inspect(env: Callable[[], Environment[Any, Any, Any]]) -> type[Environment[Any, Any, Any]]:
    """Build one environment to see its class: a function does not tell what it returns."""
    environment = env()
    environment.close()
    return type(environment)


def _mode(mode: str | None) -> str:
    chosen = str(getattr(mode, "value", mode) or os.environ.get("OPENENV_MODE") or "simulation").lower()
    if chosen not in _MODES:
        raise ConfigurationError(f"mode={chosen!r} is unknown: it must be 'simulation' or 'production'.")
    return chosen
