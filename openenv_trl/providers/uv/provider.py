"""The provider: fetches and prepares a project once, then runs its servers as child processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from openenv_trl.background import BackgroundLoop
from openenv_trl.errors import ProviderError
from openenv_trl.providers.base import Endpoint, Provider, Replica, ReplicaExit
from openenv_trl.providers.logs import LogSink
from openenv_trl.providers.process import ProcessProvider, ProcessSpec
from openenv_trl.providers.spec import ServerSpec
from openenv_trl.providers.spec_fields import own_spec, required, spec_or_fields
from openenv_trl.providers.uv.checkout import Checkout
from openenv_trl.providers.uv.commands import find_uv, run_to_end
from openenv_trl.providers.uv.git_address import GitAddress
from openenv_trl.providers.uv.serving import QUIET, Project
from openenv_trl.providers.uv.spec import UVSpec

_PUBLIC_NAMES = {"project_path": "project", "context_timeout_s": "ready_timeout_s"}


class UVProvider(Provider):
    """Serves a Python project under ``uv run``, as child processes of this one.

    The project is fetched where it is a git address, and its packages are installed, once and before the first server
    starts; then all replicas start side by side. Where the project's environment has this package, its own server
    serves; where it has not, uvicorn does. Servers end as those of `ProcessProvider` do, also when this process is
    killed; what was fetched is removed by ``stop``.

    Args:
        spec: A `UVSpec`, or a project's folder or git address; None where ``start`` is given a spec.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider.
        on_log: Called with the replica's name and one line, from a thread of the provider; with the project's name for
            the lines of git and uv.
        **fields: Fields of a `UVSpec`, in place of one; also the public package's names ``project_path`` and
            ``context_timeout_s``, for ``project`` and ``ready_timeout_s``.

    Example:
        >>> with UVProvider("git+https://huggingface.co/spaces/openenv/echo_env") as servers:
        ...     print(servers.base_urls)
    """

    SPEC = UVSpec

    def __init__(
        self,
        spec: UVSpec | str | Path | None = None,
        *,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
        **fields: Any,
    ) -> None:
        fields = {_PUBLIC_NAMES.get(name, name): value for name, value in fields.items() if value is not None}
        if isinstance(spec, str | Path):
            spec, fields = None, {"project": spec, **fields}
        self._spec = spec_or_fields(UVSpec, spec, fields)
        self._on_exit = on_exit
        self._on_log = on_log
        self._loop = BackgroundLoop("openenv-UVProvider")
        self._preparing = anyio.Lock()
        self._scope: anyio.CancelScope | None = None
        self._stopping = False
        self._checkout: Checkout | None = None
        self._servers: ProcessProvider | None = None

    @property
    def spec(self) -> UVSpec:
        """What is run.

        Raises:
            ConfigurationError: Nobody said.
        """
        return required(self._spec, "UVProvider", UVSpec)

    @property
    def replicas(self) -> list[Replica]:
        """The replicas that were started; empty before ``start`` and after ``stop``."""
        return [] if self._servers is None else self._servers.replicas

    async def start(self, spec: ServerSpec | None = None) -> Endpoint:
        """Prepares the project, starts all replicas at the same time and waits until each answers.

        Raises:
            ConfigurationError: The spec is of another provider, or there is none; uv or git is not installed; the
                project has no ``pyproject.toml``.
            ServerStartError: The project could not be fetched or its environment not be made, or a server ended or was
                not ready in time; none is left running.
            ProviderError: The provider runs already.
        """
        if self.replicas:
            raise ProviderError("this provider runs already; stop it before it is started again", phase="start")
        if spec is not None:
            spec = own_spec(spec, "UVProvider", UVSpec)
            await self.stop()  # what was prepared for another spec
            self._spec = spec
        try:
            return await (await self._prepared()).start()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stop()
            raise

    async def add_replica(self) -> Replica:
        """Starts one more replica and waits until it is ready: see `Provider.add_replica`."""
        return await (await self._prepared()).add_replica()

    async def remove_replica(self, replica: Replica) -> None:
        """Ends one replica and everything it started. Does nothing where it is gone already."""
        if self._servers is not None:
            await self._servers.remove_replica(replica)

    async def stop(self) -> None:
        """Ends all replicas and everything they started, and removes what was fetched. May be called again."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.stop_sync)

    def stop_sync(self) -> None:
        """Does what ``stop`` does, blocking."""
        if self._loop.runs:
            self._loop.portal().call(self._give_up)
            self._loop.close()
            self._stopping = False
        servers, self._servers = self._servers, None
        checkout, self._checkout = self._checkout, None
        if servers is not None:
            servers.stop_sync()
        if checkout is not None:
            checkout.remove()

    async def wait_ready(self, replica: Replica | None = None, timeout_s: float | None = None) -> None:
        """Waits until a replica answers its health check: see `Provider.wait_ready`."""
        await self._running().wait_ready(replica, timeout_s)

    async def logs(self, replica: Replica | None = None, tail: int = 100) -> str:
        """The last lines that a replica wrote; at most 60 are kept."""
        return await self._running().logs(replica, tail)

    async def alive(self, replica: Replica | None = None) -> bool:
        """Whether a replica's process runs; of all of them, if None."""
        return self._servers is not None and await self._servers.alive(replica)

    async def wait_exited(self) -> ReplicaExit:
        """Waits until a replica ends that nobody stopped: see `Provider.wait_exited`."""
        return await self._running().wait_exited()

    def _running(self) -> ProcessProvider:
        if self._servers is None:
            raise ProviderError("the provider does not run; start it first")
        return self._servers

    async def _prepared(self) -> ProcessProvider:
        self.spec  # noqa: B018 - raises where there is none
        return self._servers or await self._loop.call(self._prepare)

    async def _prepare(self) -> ProcessProvider:
        """On the provider's own loop: the project fetched, its packages installed, its servers ready to be started."""
        async with self._preparing:
            if self._servers is None and not self._stopping:
                with anyio.CancelScope() as scope:
                    self._scope = scope
                    try:
                        self._servers = await self._make_servers()
                    except BaseException:
                        if self._checkout is not None:
                            self._checkout.remove()
                            self._checkout = None
                        raise
            if self._servers is None:
                raise ProviderError("the provider was stopped while its project was prepared", phase="start")
            return self._servers

    async def _give_up(self) -> None:
        """On the provider's own loop: what is being prepared ends, and nothing more is."""
        self._stopping = True
        if self._scope is not None:
            self._scope.cancel()
        async with self._preparing:
            pass

    async def _make_servers(self) -> ProcessProvider:
        spec = self.spec
        uv = find_uv()
        address = GitAddress.of(spec.project)
        if address is None:
            folder = _resolved(spec.project)
        else:
            self._checkout = Checkout()
            folder = await self._checkout.fetch(address, spec.prepare_timeout_s)
        name = spec.name or (folder.name if address is None else address.name)
        project = Project.at(folder, uv, spec)
        env = {**spec.env_vars, **QUIET}
        said = await run_to_end(
            project.look(),
            cwd=folder,
            env=env,
            timeout_s=spec.prepare_timeout_s,
            on_line=functools.partial(LogSink(None, self._on_log).line, name),
        )
        return ProcessProvider(
            ProcessSpec(
                environment=project.serve(project.read_look(*said)),
                name=name,
                replicas=spec.replicas,
                env_vars={**QUIET, **spec.env_vars},
                ready_timeout_s=spec.ready_timeout_s,
                stop_grace_s=spec.stop_grace_s,
                health_path=spec.health_path,
                log_path=spec.log_path,
                host=spec.host,
                port=spec.port,
                cwd=folder,
                max_restarts=spec.max_restarts,
            ),
            on_exit=self._on_exit,
            on_log=self._on_log,
        )


def _resolved(folder: str) -> Path:
    return Path(folder).expanduser().resolve()
