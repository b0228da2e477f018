"""The provider: a sandbox for each replica, deleted with it, and by Daytona itself where its owner is gone."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers.base import Replica
from openenv_trl.providers.container_calls import ContainerCalls
from openenv_trl.providers.daytona.failures import in_our_words
from openenv_trl.providers.daytona.launching import LOOK, serving_command
from openenv_trl.providers.daytona.spec import DOCKERFILE, SNAPSHOT, DaytonaSpec
from openenv_trl.providers.owner import NAME_LABEL, OWNER_LABEL, this_owner
from openenv_trl.providers.polled import Ended, PolledProvider

if TYPE_CHECKING:
    from daytona import AsyncDaytona, AsyncSandbox

_SESSION = "openenv-trl"
_GIB = 1024**3
_TAIL_LINES = 60
_CLEAN_UP_S = 60.0
_KEEP_ACTIVE_EVERY_S = 60.0
_GONE = {"stopped", "stopping", "destroyed", "destroying", "error", "archived", "archiving", "build_failed"}


@dataclass(eq=False)
class _Running:
    """One sandbox with its server."""

    sandbox: AsyncSandbox
    command_id: str
    active_at: float = 0.0
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=_TAIL_LINES))
    """Its last lines, kept here: what they were is asked when the sandbox is gone."""


class DaytonaProvider(ContainerCalls[DaytonaSpec], PolledProvider[DaytonaSpec]):
    """Runs each replica in a sandbox of Daytona, and reaches it by its preview address.

    A sandbox that is not public is reached with a token, which is in its replica's headers. It is deleted when the
    replica is removed. Where its owner died, the server ends when its lease does, and Daytona deletes the sandbox when
    it has been inactive for ``auto_stop_interval`` minutes.

    Args:
        spec: A `DaytonaSpec`; None where the fields say it, or ``start`` or ``start_container`` is given it.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider's own.
        on_log: Called with the replica's name and one line, from a thread of the provider's own; also an
            image's build.
        **fields: Fields of a `DaytonaSpec`, in place of one.

    Example:
        >>> async with DaytonaProvider(image="registry.example.org/echo-env:1", cpus=1, memory="1g") as servers:
        ...     print(servers.base_urls)
    """

    SPEC = DaytonaSpec

    async def _connect(self) -> None:
        await super()._connect()
        self._running: dict[str, _Running] = {}
        self._client: AsyncDaytona | None = None
        try:
            from daytona import AsyncDaytona, DaytonaConfig, DaytonaError
        except ImportError as error:
            raise ConfigurationError(
                "The package of Daytona is not installed: pip install 'openenv-trl[daytona]'", phase="start"
            ) from error
        spec = self.spec
        key = None if spec.api_key is None else spec.api_key.get_secret_value()
        try:
            url = spec.api_url or os.environ.get("DAYTONA_API_URL")
            self._client = AsyncDaytona(DaytonaConfig(api_key=key, api_url=url, target=spec.target))
        except DaytonaError as error:
            raise in_our_words(error, spec, "connect") from error

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.close()
        await super()._disconnect()

    async def _launch(self, name: str) -> Replica:
        build: deque[str] = deque(maxlen=_TAIL_LINES)
        try:
            async with self._translated(f"start {name}", build):
                sandbox = await self._create(name, build)
                found = "" if self.spec.command else (await sandbox.process.exec(f"sh -c {shlex.quote(LOOK)}")).result
                running = await self._serve(name, sandbox, serving_command(self.spec, found))
                base_url, headers = await self._address(sandbox)
        except BaseException:
            with anyio.move_on_after(_CLEAN_UP_S, shield=True):
                await self._delete_by_label(name)
            raise
        self._running[name] = running
        await self._spawn(self._follow, name, running)
        return Replica(base_url, name, sandbox.id, headers)

    async def _create(self, name: str, build: deque[str]) -> AsyncSandbox:
        from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, Image, Resources

        spec = self.spec
        common: dict[str, Any] = {
            "env_vars": {**spec.env_vars, **self._lease_variables(name), "PORT": str(spec.port)},
            "labels": {**spec.labels, **this_owner().labels(name, spec.lease_s)},
            "public": spec.public,
            "os_user": spec.user,
            "auto_stop_interval": spec.auto_stop_interval,
            "auto_delete_interval": 0,  # as soon as it is stopped
            "ttl_minutes": spec.ttl_minutes,
            "network_block_all": True if spec.network == "internal" else None,
        }
        client = self._connected_client()
        if spec.image.startswith(SNAPSHOT):
            snapshot = CreateSandboxFromSnapshotParams(snapshot=spec.image.removeprefix(SNAPSHOT), **common)
            return await client.create(snapshot, timeout=spec.create_timeout_s)
        image: Any = spec.image
        if image.startswith(DOCKERFILE):
            image = Image.from_dockerfile(image.removeprefix(DOCKERFILE))
        resources = Resources(cpu=_whole(spec.cpus), memory=_gib(spec.memory), disk=_gib(spec.disk), gpu=spec.gpus)

        def take(chunk: str) -> None:
            for line in chunk.splitlines():
                build.append(line)
                self._sink.line(name, line)

        return await client.create(
            CreateSandboxFromImageParams(image=image, resources=resources, **common),
            timeout=spec.create_timeout_s,
            on_snapshot_create_logs=take,
        )

    async def _serve(self, name: str, sandbox: AsyncSandbox, command: str) -> _Running:
        from daytona import SessionExecuteRequest

        await sandbox.process.create_session(_SESSION)
        begun = await sandbox.process.execute_session_command(
            _SESSION, SessionExecuteRequest(command=command, run_async=True)
        )
        return _Running(sandbox, begun.cmd_id, anyio.current_time())

    async def _address(self, sandbox: AsyncSandbox) -> tuple[str, dict[str, str]]:
        spec = self.spec
        if spec.signed_url_s is not None:
            signed = await sandbox.create_signed_preview_url(spec.port, spec.signed_url_s)
            return signed.url.rstrip("/"), {}
        link = await sandbox.get_preview_link(spec.port)
        headers = {"X-Daytona-Skip-Preview-Warning": "true"}
        if not spec.public:
            headers["X-Daytona-Preview-Token"] = link.token
        return link.url.rstrip("/"), headers

    async def _follow(self, name: str, running: _Running) -> None:
        """Passes the server's lines on, and looks at it as soon as there are no more."""
        rest = ""

        def take(chunk: str) -> None:
            nonlocal rest
            *lines, rest = (rest + chunk).split("\n")
            for line in lines:
                running.tail.append(line)
                self._sink.line(name, line)

        from daytona import DaytonaError

        with contextlib.suppress(DaytonaError, OSError):
            process = running.sandbox.process
            await process.get_session_command_logs_async(_SESSION, running.command_id, take, take)
        if rest:
            take("\n")
        kept = self._kept.get(name)
        if kept is not None and not kept.removing:
            await self._look_at(kept.replica)

    async def _remove(self, replica: Replica) -> None:
        running = self._running.pop(replica.name, None)
        if running is not None:
            await self._delete(running.sandbox)

    async def _delete(self, sandbox: AsyncSandbox) -> None:
        from daytona import DaytonaError, DaytonaNotFoundError

        try:
            await sandbox.delete(timeout=_CLEAN_UP_S, wait=True)
        except DaytonaNotFoundError:
            pass  # it deleted itself when it stopped
        except DaytonaError as error:
            raise ProviderError(
                f"Daytona did not delete the sandbox {sandbox.id}: {error}. Delete it in its dashboard; or it goes by "
                f"itself after {self.spec.auto_stop_interval} minutes without activity."
            ) from error

    async def _delete_by_label(self, name: str) -> None:
        """Delete what a start has left that did not come to its end, also where its answer was not waited for."""
        from daytona import DaytonaError, ListSandboxesQuery

        labels = {OWNER_LABEL: this_owner().id, NAME_LABEL: name}
        with contextlib.suppress(DaytonaError, ProviderError):  # the start's own error is the one to be told
            async for sandbox in self._connected_client().list(ListSandboxesQuery(labels=labels)):
                await self._delete(sandbox)

    async def _is_alive(self, replica: Replica) -> bool:
        return await self._look(replica) is None

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        running = self._running.get(replica.name)
        if running is None:
            return ""
        async with self._translated(f"read the log of {replica.name}"):
            logs = await running.sandbox.process.get_session_command_logs(_SESSION, running.command_id)
        return "\n".join((logs.output or logs.stdout or "").splitlines()[-tail:])

    def _pause_s(self) -> float:
        return self.spec.check_every_s

    async def _look(self, replica: Replica) -> Ended | None:
        from daytona import DaytonaNotFoundError

        running = self._running.get(replica.name)
        if running is None:
            return None
        try:
            async with self._translated(f"look at {replica.name}"):
                return await self._look_into(running)
        except ConfigurationError as error:
            if isinstance(error.__cause__, DaytonaNotFoundError):
                return Ended(None, "\n".join(running.tail), "its sandbox was deleted")
            raise

    async def _look_into(self, running: _Running) -> Ended | None:
        sandbox = running.sandbox
        await sandbox.refresh_data()
        tail = "\n".join(running.tail)
        if sandbox.state is None or sandbox.state.value in _GONE:
            why = f", {sandbox.error_reason}" if sandbox.error_reason else ""
            return Ended(None, tail, f"its sandbox is {sandbox.state.value if sandbox.state else 'gone'}{why}")
        command = await sandbox.process.get_session_command(_SESSION, running.command_id)
        if command.exit_code is not None:
            return Ended(command.exit_code, tail)
        now = anyio.current_time()
        if now - running.active_at > _KEEP_ACTIVE_EVERY_S:
            await sandbox.refresh_activity()
            running.active_at = now
        return None

    @asynccontextmanager
    async def _translated(self, doing: str, build: deque[str] | None = None) -> AsyncGenerator[None]:
        from daytona import DaytonaError

        try:
            yield
        except DaytonaError as error:
            raise in_our_words(error, self.spec, doing, "\n".join(build or ())) from error

    def _connected_client(self) -> AsyncDaytona:
        assert self._client is not None, "nothing is launched before the client is there"
        return self._client


def _whole(cpus: float | None) -> int | None:
    return None if cpus is None else math.ceil(cpus)


def _gib(size: int | None) -> int | None:
    return None if size is None else math.ceil(size / _GIB)
