"""`create_app`: an environment class becomes a server.

Argument names, their order and rules are those of the public package's functions and class of the same names.
`HTTPEnvServer.register_routes` is the table of contents: one line for each family of routes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.routing import WebSocketRoute

from openenv_trl.environment import Environment
from openenv_trl.server.access_middleware import install_access
from openenv_trl.server.arguments import EnvironmentModels, concurrency_of, mode_of, wants_web_page, warn_of_gradio
from openenv_trl.server.capacity import ConcurrencyConfig, ServerCapacityStatus, SessionInfo
from openenv_trl.server.descriptive_routes import install_descriptive_routes
from openenv_trl.server.execution import SingleThread, WorkerThreads
from openenv_trl.server.hooks import class_behind, factory_name, is_repeatable
from openenv_trl.server.host import SessionHost
from openenv_trl.server.lease_door import install_lease
from openenv_trl.server.mcp_route import install_mcp
from openenv_trl.server.metrics_page import install_metrics
from openenv_trl.server.probes import add_probes
from openenv_trl.server.rpc_routes import install_rpc_route
from openenv_trl.server.rpc_socket import install_rpc_socket
from openenv_trl.server.settings import AppSettings
from openenv_trl.server.simulation_routes import install_simulation_routes
from openenv_trl.server.task_routes import install_task_routes
from openenv_trl.server.websocket import WebSocketEndpoint
from openenv_trl.server.workers.joining import join_workers, ledger_here
from openenv_trl.types import Action, Observation, ServerMode, State

_API_TITLE, _API_VERSION = "OpenEnv Environment HTTP API", "1.0.0"  # the public package's
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
    mode: str | ServerMode | None = None,
    reset_observation_cls: type[Observation] | None = None,
    settings: AppSettings | None = None,
) -> FastAPI:
    """Return an ASGI application that serves an environment over every wire that this package speaks.

    Args:
        env: Builds one environment: the class itself, or a function without arguments.
        action_cls: The action that a step takes.
        observation_cls: The observation that a step gives.
        env_name: The environment's name; the factory's own if None.
        max_concurrent_envs: Sessions at once; 1 if None. More than one needs a class that sets
            ``SUPPORTS_CONCURRENT_SESSIONS``.
        concurrency_config: The same as a config; give one or the other.
        gradio_builder: Of the public package's web page, which is made with Gradio; the debug page of this server is
            not. Accepted, so that an application can be served as it is, and without effect. The same holds for the
            next three.
        custom_tab_name: See ``gradio_builder``.
        custom_tab_primary: See ``gradio_builder``.
        show_default_tab: See ``gradio_builder``.
        title_override: What stands at the top of the debug page; the environment's name if None.
        state_cls: The state's class, for ``/schema``.
        mode: "simulation" or "production"; the environment variable OPENENV_MODE, then "simulation", if None.
        reset_observation_cls: The observation that a reset gives, where it is another one.
        settings: How sessions are held; what the environment variables say if None. With ``web_interface`` (or
            ENABLE_WEB_INTERFACE=true) there is a debug page at /web/.

    Raises:
        TypeError: ``env`` is not a callable (an instance, most often).
        ConfigurationError: A setting that cannot work.

    Example:
        >>> app = create_app(EchoEnvironment, EchoAction, EchoObservation, max_concurrent_envs=64)
    """
    warn_of_gradio(
        gradio_builder=gradio_builder is not None,
        custom_tab_name=custom_tab_name != "Custom",
        custom_tab_primary=custom_tab_primary,
        show_default_tab=not show_default_tab,
    )
    settings = settings or AppSettings.from_environment()
    app = FastAPI(title=_API_TITLE, version=_API_VERSION)
    app.state.page_title = title_override
    HTTPEnvServer(
        env,
        action_cls,
        observation_cls,
        max_concurrent_envs,
        concurrency_config,
        env_name,
        state_cls,
        reset_observation_cls=reset_observation_cls,
        settings=settings.model_copy(update={"web_interface": wants_web_page(settings.web_interface)}),
    ).register_routes(app, mode)
    return app


def create_web_interface_app(
    env: Callable[[], Environment[Any, Any, Any]],
    action_cls: type[Action],
    observation_cls: type[Observation],
    *arguments: Any,
    settings: AppSettings | None = None,
    **named: Any,
) -> FastAPI:
    """Return the application of `create_app`, with the debug page whatever the settings say."""
    chosen = (settings or AppSettings.from_environment()).model_copy(update={"web_interface": True})
    return create_app(env, action_cls, observation_cls, *arguments, settings=chosen, **named)


def create_fastapi_app(
    env: Callable[[], Environment[Any, Any, Any]],
    action_cls: type[Action],
    observation_cls: type[Observation],
    max_concurrent_envs: int | None = None,
    concurrency_config: ConcurrencyConfig | None = None,
    env_name: str | None = None,
    state_cls: type[State] = State,
    *,
    mode: str | ServerMode | None = None,
    reset_observation_cls: type[Observation] | None = None,
    settings: AppSettings | None = None,
) -> FastAPI:
    """Return the application of `create_app`, without its arguments for a web page. Mind the order of ``env_name``.

    It has the debug page where the settings' ``web_interface`` is true; ENABLE_WEB_INTERFACE is not asked, as in the
    public package.
    """
    server = HTTPEnvServer(
        env,
        action_cls,
        observation_cls,
        max_concurrent_envs,
        concurrency_config,
        env_name,
        state_cls,
        reset_observation_cls=reset_observation_cls,
        settings=settings,
    )
    app = FastAPI(title=_API_TITLE, version=_API_VERSION)
    server.register_routes(app, mode)
    return app


class HTTPEnvServer:
    """An environment's sessions, for an application to be given routes to.

    The arguments are those of `create_fastapi_app`.

    Raises:
        TypeError: ``env`` is not a callable (an instance, most often).
        ConfigurationError: A setting that cannot work.
    """

    def __init__(
        self,
        env: Callable[[], Environment[Any, Any, Any]],
        action_cls: type[Action],
        observation_cls: type[Observation],
        max_concurrent_envs: int | None = None,
        concurrency_config: ConcurrencyConfig | None = None,
        env_name: str | None = None,
        state_cls: type[State] = State,
        *,
        reset_observation_cls: type[Observation] | None = None,
        settings: AppSettings | None = None,
    ) -> None:
        self._env = env
        self._config = config = concurrency_of(env, max_concurrent_envs, concurrency_config)
        self._settings = settings or AppSettings.from_environment()
        self._models = EnvironmentModels(
            action_cls, observation_cls, state_cls, reset_observation_cls or observation_cls
        )
        self._env_name = env_name or factory_name(env)
        known = class_behind(env)
        # An unknown class may want a single thread. With one session at a time that costs nothing, so it gets it.
        single = known.REQUIRES_SINGLE_THREAD_EXECUTOR if known is not None else config.max_concurrent_envs == 1
        threads = config.max_concurrent_envs + _SPARE_THREADS
        self.host = SessionHost(
            env,
            action_cls,
            ledger_here(config.max_concurrent_envs),
            SingleThread(threads) if single else WorkerThreads(threads),
            settings=self._settings,
            session_timeout=config.session_timeout,
        )

    @property
    def concurrency_config(self) -> ConcurrencyConfig:
        """How many sessions at once, and for how long."""
        return self._config

    @property
    def max_concurrent_envs(self) -> int:
        """Sessions at once."""
        return self._config.max_concurrent_envs

    @property
    def active_sessions(self) -> int:
        """Sessions that have a slot now."""
        return self.host.status.active_sessions

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether the environment class says that its instances share nothing. A function is taken at its word."""
        known = class_behind(self._env)
        return known.SUPPORTS_CONCURRENT_SESSIONS if known is not None else self.max_concurrent_envs > 1

    def get_capacity_status(self) -> ServerCapacityStatus:
        """Return how full the server is."""
        return self.host.status

    def get_session_info(self, session_id: str) -> SessionInfo | None:
        """Return what is known of an open session; None where there is none of that id."""
        hosted = self.host.sessions.get(session_id)
        if hosted is None:
            return None
        since_1970 = time.time() - time.monotonic()
        return SessionInfo(
            session_id=session_id,
            created_at=since_1970 + hosted.session.opened_at,
            last_activity_at=since_1970 + hosted.session.last_activity_at,
            step_count=hosted.session.step_count,
            environment_type=hosted.environment_name,
        )

    def register_routes(self, app: FastAPI, mode: str | ServerMode | None = None) -> None:
        """Give an application the routes of this server, and its start and end.

        Args:
            app: The application. What this server keeps for its routes is found on ``app.state``.
            mode: "simulation" or "production"; the environment variable OPENENV_MODE, then "simulation", if None.

        Raises:
            ConfigurationError: There is no such mode.
        """
        app.state.settings = self._settings
        app.state.session_host = self.host
        app.state.max_concurrent_envs = self._config.max_concurrent_envs
        app.state.env_name = self._env_name
        app.state.is_repeatable = is_repeatable(self._env)
        app.state.mode = self.host.mode = mode_of(mode)
        app.state.models = self._models
        app.state.nursery = self.host.nursery
        endpoint = WebSocketEndpoint(self.host, self._settings)
        app.state.doors = {"/ws": endpoint.accept}
        app.router.routes.append(WebSocketRoute("/ws", endpoint, name="ws"))
        install_rpc_socket(app)
        install_descriptive_routes(app)
        if app.state.mode is ServerMode.SIMULATION:
            install_simulation_routes(app)
        install_rpc_route(app)
        install_task_routes(app)
        information = {"name": self._env_name, "mode": app.state.mode}
        install_metrics(app, self.host.metrics, lambda: self.host.ledger.status, information)
        add_probes(app, self.host)
        join_workers(app, self.host, self._settings.max_message_bytes)
        install_mcp(app, self.host, self._settings)
        install_access(app, self._settings, self._install_page(app))
        install_lease(app)
        _install_lifespan(app, self.host)

    def _install_page(self, app: FastAPI) -> frozenset[str]:
        """Add the debug page, where it is wanted. Returns the paths that need no token."""
        if not self._settings.web_interface:
            return frozenset()
        from openenv_trl.server.web.mounting import install_web_page

        return install_web_page(app, self._env, getattr(app.state, "page_title", None))


def _install_lifespan(app: FastAPI, host: SessionHost) -> None:
    """Run the host for as long as the application runs, within whatever the application does itself."""
    outer = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running_app: Any) -> AsyncGenerator[Any]:
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(outer(running_app))
            stack.callback(host.shut_down)
            running = getattr(host, "running", None)
            if running is not None:
                await stack.enter_async_context(running())
            yield state

    app.router.lifespan_context = lifespan
