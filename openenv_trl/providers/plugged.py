"""Providers written for the public package, used as ours: also as members of a pool.

Such a provider runs one server and blocks. Each replica here has one of its own, called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import anyio
import anyio.to_thread
from pydantic import Field

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.providers.base import Replica, ReplicaExit
from openenv_trl.providers.logs import logger
from openenv_trl.providers.polled import Ended, PolledProvider
from openenv_trl.providers.spec import ServerSpec

_FAILURES_BEFORE_DEATH = 3
_LOOK_S = 2.0
_THREADS = 256


class _Startable(Protocol):
    """Either of the public package's two kinds, as far as both are alike."""

    wait_for_ready: Callable[..., Any]


class PluggedSpec(ServerSpec, frozen=True):
    """Servers that a provider of another package runs."""

    type: Literal["plugged"] = "plugged"
    image: str | None = None
    """What ``start_container`` is given; None for a provider that knows itself what it runs."""
    port: int | None = None
    """The port that is asked for; the provider's own choice if None. With one replica only."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """What else ``start_container``, or ``start``, is given."""
    look_s: float = Field(default=_LOOK_S, gt=0)
    """Seconds between two health checks; a server that fails three in a row is taken for dead."""


class PluggedProvider(PolledProvider[PluggedSpec]):
    """Runs servers by means of a provider that was written for the public package.

    Args:
        factory: Makes one of the third party's providers; called once for each replica. It has ``start_container``,
            ``stop_container`` and ``wait_for_ready(base_url, timeout_s)``, or ``start``, ``stop`` and
            ``wait_for_ready(timeout_s)``.
        image: What to run; None for a provider that knows itself.
        replicas: How many to start.
        port: The port to ask for.
        env_vars: Environment variables of each server.
        ready_timeout_s: Seconds within which each server must be ready.
        name: What replicas are called; after the factory if None.
        look_s: Seconds between two health checks.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider's own.
        **options: What else the third party's provider is to be given at the start.

    Example:
        >>> pool_member = PluggedProvider(OpenShellProvider, image="echo-env:latest", replicas=4)
    """

    SPEC = PluggedSpec

    def __init__(
        self,
        factory: Callable[[], Any],
        image: str | None = None,
        *,
        replicas: int = 1,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
        name: str | None = None,
        look_s: float = _LOOK_S,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        **options: Any,
    ) -> None:
        if not callable(factory):
            raise ConfigurationError(
                f"PluggedProvider needs what makes a provider for each replica, such as the class; "
                f"it was given a {type(factory).__name__}. Pass lambda: provider to use that one, with replicas=1."
            )
        self._factory = factory
        self._made: dict[str, _Startable] = {}
        self._failures: dict[str, int] = {}
        spec = PluggedSpec(
            image=image,
            replicas=replicas,
            port=port,
            env_vars=dict(env_vars or {}),
            ready_timeout_s=ready_timeout_s,
            name=name,
            look_s=look_s,
            options=options,
        )
        super().__init__(spec, on_exit=on_exit)

    def _default_name(self) -> str:
        return str(getattr(self._factory, "__name__", "plugged")).strip("<>").lower()

    async def _connect(self) -> None:
        self._threads = anyio.CapacityLimiter(_THREADS)
        await super()._connect()

    async def _launch(self, name: str) -> Replica:
        # Not to be left halfway: a start that nobody waits for would leave what it started behind.
        base_url = ""
        with anyio.CancelScope(shield=True):
            base_url = await anyio.to_thread.run_sync(self._start_one, name, limiter=self._threads)
        return Replica(base_url, name, base_url)

    def _start_one(self, name: str) -> str:
        """Makes and starts one, in a thread."""
        spec = self.spec
        made = self._factory()
        containers = hasattr(made, "start_container")
        if not containers and not hasattr(made, "start"):
            raise ConfigurationError(
                f"{type(made).__name__} has neither start_container nor start: PluggedProvider takes providers of the "
                "public package's two kinds."
            )
        arguments: dict[str, Any] = dict(spec.options)
        if spec.port is not None:
            arguments["port"] = spec.port
        if spec.env_vars:
            arguments["env_vars"] = dict(spec.env_vars)
        try:
            if not containers:
                base_url: Any = made.start(**arguments)
            elif spec.image is None:
                base_url = made.start_container(**arguments)
            else:
                base_url = made.start_container(spec.image, **arguments)
        except Exception as error:
            try:
                _stop_one(made)
            except Exception as second:
                logger.warning("what %s began could not be stopped either: %s", type(made).__name__, second)
            raise ServerStartError(
                f"{name} could not be started: {type(made).__name__}: {type(error).__name__}: {error}"
            ) from error
        self._made[name] = made
        return str(base_url).rstrip("/")

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        made = self._made[replica.name]

        def wait() -> None:
            if hasattr(made, "start_container"):
                made.wait_for_ready(replica.base_url, timeout_s=timeout_s)
            else:
                made.wait_for_ready(timeout_s=timeout_s)

        with anyio.move_on_after(timeout_s + 5.0):
            try:
                await anyio.to_thread.run_sync(wait, abandon_on_cancel=True, limiter=self._threads)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            return ""
        return "its wait_for_ready has not come back"

    async def _remove(self, replica: Replica) -> None:
        made = self._made.pop(replica.name, None)
        self._failures.pop(replica.name, None)
        if made is not None:
            await anyio.to_thread.run_sync(_stop_one, made, limiter=self._threads)

    async def _is_alive(self, replica: Replica) -> bool:
        return not await self._ask(replica)

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        return ""  # the public package's providers have none to give

    def _pause_s(self) -> float:
        return self.spec.look_s

    async def _look(self, replica: Replica) -> Ended | None:
        answer = await self._ask(replica)
        self._failures[replica.name] = self._failures.get(replica.name, 0) + 1 if answer else 0
        if self._failures[replica.name] < _FAILURES_BEFORE_DEATH:
            return None
        return Ended(None, "", f"it failed {_FAILURES_BEFORE_DEATH} health checks in a row: {answer}")

    async def _ask(self, replica: Replica) -> str:
        """One health check: "" when it was answered, otherwise what came instead."""
        return await self._web.ask(f"{replica.base_url}{self.spec.health_path}", replica.headers)


def _stop_one(made: Any) -> None:
    """Ends what one of the third party's providers runs, blocking."""
    try:
        if hasattr(made, "stop_container"):
            made.stop_container()
        else:
            made.stop()
    finally:
        if hasattr(made, "close"):
            made.close()
