"""Environment servers in containers of a Docker engine: started side by side, watched, removed with all they left."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.base import Replica, ReplicaExit
from openenv_trl.providers.container_calls import ContainerCalls
from openenv_trl.providers.docker.connection import EngineConnection, open_engine
from openenv_trl.providers.docker.container_state import ENGINE_WENT, ContainerState
from openenv_trl.providers.docker.engine_watch import EngineWatch
from openenv_trl.providers.docker.failures import image_missing, network_refused, refused, unreachable_from_here
from openenv_trl.providers.docker.images import ImageFacts, image_facts
from openenv_trl.providers.docker.removal import Leftovers, remove_container
from openenv_trl.providers.docker.spec import DockerSpec, container_config, network_config, with_defaults
from openenv_trl.providers.owner import this_owner

_REMOVAL_S = 20.0
_TOLD_OF_DEATH_S = 15.0


class LocalDockerProvider(ContainerCalls[DockerSpec]):
    """Runs environment servers in containers, each published on a port of 127.0.0.1 that the engine chooses.

    Containers run without capabilities and cannot gain any; those of an image labelled ``openenv-trl.sandbox=true``
    also read-only, on a network without a way out, and with limits on memory, processors and processes. They are
    removed by ``stop``, by the end of the ``with`` block, and by the engine itself when their server ends, in whatever
    way. The first time that the image is needed it is pulled, if the engine does not have it.

    Args:
        spec: What to run, or just its image; None where the fields say it, or ``start`` or ``start_container`` is
            given it.
        docker_host: The engine's address, over the spec's; see `DockerSpec`.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider's own.
        on_log: Called with the replica's name and one line, from a thread of the provider's own.
        **fields: The fields of `DockerSpec`, in place of a spec.

    Raises:
        ConfigurationError: There is no such field, or its value cannot be used.

    Example:
        >>> with LocalDockerProvider(image="echo-env:latest", replicas=2, memory="512m") as servers:
        ...     print(servers.base_urls)
    """

    SPEC = DockerSpec

    def __init__(
        self,
        spec: DockerSpec | str | None = None,
        *,
        docker_host: str | None = None,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(spec, on_exit=on_exit, on_log=on_log, **fields)
        self._given_host = docker_host
        self._connection: EngineConnection | None = None
        self._watch: EngineWatch | None = None
        self._watching: Future[Any] | None = None
        self._network: str | None = None
        self._filled: DockerSpec | None = None
        self._image = ImageFacts({}, ())
        self._leftovers = Leftovers()

    @property
    def _docker_host(self) -> str | None:
        return self._given_host or (None if self._spec is None else self._spec.docker_host)

    # What an engine does.

    def _default_name(self) -> str:
        last = self.spec.image.split("@")[0].rpartition("/")[2].partition(":")[0]
        return last or "docker"

    async def _connect(self) -> None:
        connection = self._connection = await open_engine(self._docker_host)
        watch = self._watch = EngineWatch(connection, this_owner().id, self._tell, self._sink.line)
        self._watching = await self._spawn(watch.run)
        await self._leftovers.remove(connection)
        image = self._image = await image_facts(connection, self.spec)
        self._filled = with_defaults(self.spec, image.labels)
        wrong = unreachable_from_here(self._filled, connection)
        if wrong is not None:
            raise wrong
        if self._filled.network == "internal":
            # Not to be left halfway: the engine makes it although nobody waits for the answer.
            with anyio.CancelScope(shield=True):
                self._network = await self._make_network(connection)
        await watch.running()

    async def _disconnect(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None and self._watching is not None:
            await watch.running()
            await watch.close()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if self._network is not None:
                self._leftovers.add(networks=[self._network])
            await self._leftovers.remove(connection)
        finally:
            self._network = None
            await connection.close()

    async def _launch(self, name: str) -> Replica:
        connection, watch, spec = self._parts()
        container_name = f"openenv-{name}-{uuid.uuid4().hex[:8]}"
        labels = this_owner().labels(name, spec.lease_s, container_name)
        config = container_config(spec, labels, self._lease_variables(name), self._network, self._image.volumes)
        container: Any = None
        with anyio.CancelScope(shield=True):
            container = await self._create(connection, spec, name, container_name, config)
        state = ContainerState(container.id, name, spec.memory)
        watch.containers[container.id] = state
        try:
            await watch.follow(state, container)
            with anyio.CancelScope(shield=True):
                await self._start(connection, spec, name, container)
            shown = await self._show(connection, container)
            base_url = self._address_of(connection, spec, shown) if shown is not None else None
            if shown is not None:
                mounts: list[dict[str, str]] = shown.get("Mounts") or []
                state.volumes = tuple(each["Name"] for each in mounts if each.get("Type") == "volume")
            if base_url is None:
                base_url = await self._told_of_death(state)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._clear_away(container.id, None)
            raise
        state.base_url = base_url
        return Replica(base_url, name, container.id)

    async def _remove(self, replica: Replica) -> None:
        await self._clear_away(replica.id, self.spec.stop_grace_s)

    async def _is_alive(self, replica: Replica) -> bool:
        connection, _, _ = self._parts()
        shown = await self._show(connection, connection.docker.containers.container(replica.id))
        return shown is not None and bool(shown["State"]["Running"])

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        _, watch, _ = self._parts()
        state = watch.containers.get(replica.id)
        return "" if state is None else state.tail(tail)

    # Starting.

    async def _create(
        self, connection: EngineConnection, spec: DockerSpec, name: str, container_name: str, config: dict[str, Any]
    ) -> Any:
        import aiodocker

        try:
            with connection.call():
                return await connection.docker.containers.create(config, name=container_name)
        except aiodocker.DockerError as error:
            if error.status == 404 and "image" in error.message.lower():
                raise image_missing(spec, connection, "it was there when this provider began") from None
            raise refused(spec, name, error.message) from None
        except ProviderError:
            # The engine may have made it all the same.
            with contextlib.suppress(Exception):
                await self._clear_away(container_name, None)
            raise

    async def _start(self, connection: EngineConnection, spec: DockerSpec, name: str, container: Any) -> None:
        import aiodocker

        try:
            with connection.call():
                await container.start()
        except aiodocker.DockerError as error:
            raise refused(spec, name, error.message) from None

    def _address_of(self, connection: EngineConnection, spec: DockerSpec, shown: dict[str, Any]) -> str | None:
        """Where its server can be reached; None where the container has ended already."""
        settings: dict[str, Any] = shown["NetworkSettings"]
        if self._network is not None:
            networks: dict[str, dict[str, str]] = settings["Networks"]
            address = next((each["IPAddress"] for each in networks.values()), "")
            return f"http://{address}:{spec.port}" if address else None
        ports: dict[str, list[dict[str, str]] | None] = settings.get("Ports") or {}
        bound = ports.get(f"{spec.port}/tcp")
        if not bound:
            return None
        host = spec.host
        if host in ("0.0.0.0", "::"):
            host = connection.address.machine or "127.0.0.1"
        return f"http://{f'[{host}]' if ':' in host else host}:{bound[0]['HostPort']}"

    async def _told_of_death(self, state: ContainerState) -> str:
        """Waits until the end of a container is known that had ended before its address was."""
        with anyio.move_on_after(_TOLD_OF_DEATH_S):
            await state.died.wait()
            await state.output_over.wait()
        state.lose("it ended at once")
        self._tell(state)
        return f"http://{self.spec.host}:{self.spec.port}"

    async def _show(self, connection: EngineConnection, container: Any) -> dict[str, Any] | None:
        import aiodocker

        try:
            with connection.call():
                return await container.show()
        except aiodocker.DockerError as error:
            if error.status == 404:
                return None
            raise ProviderError(f"the Docker engine does not tell of {container.id[:12]}: {error.message}") from None

    def _tell(self, state: ContainerState) -> None:
        self._note_exit(state.name, state.exit_code, state.tail(), state.reason)

    # Removing.

    async def _clear_away(self, container_id: str, grace_s: float | None) -> None:
        """End a container, with a time of grace or at once, and see to it that nothing of it is left."""
        connection, watch, _ = self._parts()
        state = watch.containers.get(container_id)
        died = state is not None and state.died.is_set()
        if state is not None:
            state.removing = True
        try:
            await remove_container(connection, container_id, None if died else grace_s)
            if state is not None and watch.listening and state.reason != ENGINE_WENT:
                # The engine removes the volumes last, and then says so.
                with anyio.move_on_after(_REMOVAL_S):
                    await state.gone.wait()
            if state is not None:
                self._leftovers.add(volumes=state.volumes)
                await self._leftovers.remove(connection)
        except ProviderError:
            # What ended with its engine, the engine removes when it starts again, but not always its volumes.
            if state is not None:
                self._leftovers.add(volumes=state.volumes)
            if state is None or state.reason != ENGINE_WENT:
                raise
        finally:
            watch.forget(container_id)

    # The internal network.

    async def _make_network(self, connection: EngineConnection) -> str:
        import aiodocker

        name = f"openenv-trl-{uuid.uuid4().hex[:10]}"
        labels = this_owner().labels(self._base_name(), self.spec.lease_s)
        try:
            with connection.call():
                network = await connection.docker.networks.create(network_config(name, labels))
        except aiodocker.DockerError as error:
            raise network_refused(error.message) from None
        return network.id

    def _parts(self) -> tuple[EngineConnection, EngineWatch, DockerSpec]:
        if self._connection is None or self._watch is None or self._filled is None:
            raise ProviderError("the provider does not run")
        return self._connection, self._watch, self._filled
