"""One Docker engine that is a manager of a Swarm; whatever it refuses is said in words.

The engine's API is spoken through aiodocker, and past its wrappers where they lack a field.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Mapping
from typing import Any, cast

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.docker.connection import CALL_TIMEOUT_S, EngineConnection, open_engine
from openenv_trl.providers.swarm.nodes import node_state
from openenv_trl.providers.swarm.tasks import Task

_CONFLICT_RETRIES = 20
_LOGS_S = 10.0
_ABSENT = 404


class RefusedError(ProviderError):
    """The engine answered that it would not.

    Attributes:
        status: The HTTP status of its answer.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class SwarmEngine:
    """What the provider asks of a manager.

    Args:
        connection: The engine, reached.
    """

    def __init__(self, connection: EngineConnection) -> None:
        self._connection = connection
        self._docker = connection.docker
        self.where = connection.address.url
        """Its address."""
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self.node_id = ""
        """The Swarm's id of the engine's own node."""

    @classmethod
    async def open(cls, docker_host: str | None) -> SwarmEngine:
        """Reaches an engine.

        Args:
            docker_host: Its address; found as the docker command does if None.

        Raises:
            ConfigurationError: aiodocker is not installed, or the address cannot be used.
            ProviderError: No engine answers; the message says what to do.
        """
        return cls(await open_engine(docker_host))

    async def close(self) -> None:
        """Lets go of it."""
        await self._connection.close()

    @contextlib.contextmanager
    def _words(self, doing: str, timeout_s: float | None = CALL_TIMEOUT_S) -> Generator[None]:
        import aiodocker

        try:
            with self._connection.call(timeout_s):
                yield
        except aiodocker.DockerError as error:
            message = f"The Docker engine at {self.where} refused to {doing}: {error.message}"
            raise RefusedError(message, error.status) from None

    async def swarm_state(self) -> Mapping[str, Any]:
        """What the engine says of its part in a Swarm."""
        with self._words("tell of itself"):
            info = await self._docker.system.info()
        return info["Swarm"]

    async def become_swarm(self, listen_addr: str, data_port: int) -> None:
        """Makes the engine a Swarm of its own."""
        with self._words("become a Swarm"):
            host = listen_addr.rpartition(":")[0] or listen_addr
            await self._docker.swarm.init(advertise_addr=host, listen_addr=listen_addr, data_path_port=data_port)

    async def network(self, name: str) -> Mapping[str, Any] | None:
        """What the engine says of a network; None where there is none."""
        with self._words("list its networks"):
            networks = await self._docker.networks.list(filters={"name": [name]})
        return next((each for each in networks if each["Name"] == name), None)

    async def create(self, definition: dict[str, Any], auth: dict[str, str] | None) -> str:
        """Makes a service and returns its id."""
        with self._words(f"make the service {definition['name']}"):
            registry = {"auth": auth, "registry": auth["serveraddress"]} if auth else {}
            made = await self._docker.services.create(**definition, **registry)
        return made["ID"]

    async def service(self, service_id: str) -> dict[str, Any] | None:
        """What the engine says of a service; None where there is none."""
        try:
            with self._words("tell of a service"):
                return await self._docker.services.inspect(service_id)
        except RefusedError as error:
            if error.status == _ABSENT:
                return None
            raise

    async def id_of(self, name: str) -> str:
        """The id of the service with a name; empty where there is none."""
        service = await self.service(name)
        return "" if service is None else service["ID"]

    async def mesh_port(self, service_id: str) -> int:
        """The port by which the mesh brings connections to a service."""
        service = await self.service(service_id)
        endpoint: dict[str, Any] = {} if service is None else service.get("Endpoint") or {}
        ports: list[dict[str, int]] = endpoint.get("Ports") or []
        if not ports:
            raise ProviderError("Swarm has given the service no port")
        return ports[0]["PublishedPort"]

    async def update(self, service_id: str, definition: dict[str, Any], auth: dict[str, str] | None) -> None:
        """Replaces a service's tasks, in the order that the definition gives, also where nothing differs."""
        for _ in range(_CONFLICT_RETRIES):
            service = await self.service(service_id)
            if service is None:
                raise ProviderError("the service was removed from the Swarm")
            template = dict(definition["task_template"])
            container = dict(template["ContainerSpec"])
            container["Env"] = [f"{key}={value}" for key, value in container["Env"].items()]
            template["ContainerSpec"] = container
            template["ForceUpdate"] = service["Spec"]["TaskTemplate"].get("ForceUpdate", 0) + 1
            body = {
                "Name": service["Spec"]["Name"],
                "Labels": definition["labels"],
                "TaskTemplate": template,
                "Mode": definition["mode"],
                "UpdateConfig": definition["update_config"],
                "RollbackConfig": definition["rollback_config"],
                "EndpointSpec": definition["endpoint_spec"],
            }
            try:
                with self._words("update a service"):
                    await self._docker._query_json(
                        f"services/{service_id}/update",
                        "POST",
                        data=json.dumps(body),
                        params={"version": service["Version"]["Index"]},
                        headers=_auth_header(auth),
                    )
                return
            except RefusedError as error:
                # Swarm itself wrote to the service since it was read.
                if "out of sequence" not in str(error):
                    raise
        raise ProviderError("the service was changed by somebody else over and over while it was to be updated")

    async def roll_back(self, service_id: str) -> None:
        """Gives up an update that is on its way; what it has replaced is replaced back."""
        service = await self.service(service_id)
        if service is not None:
            with self._words("roll a service back"):
                await self._docker.services.update(service_id, service["Version"]["Index"], rollback=True)

    async def remove(self, service: str) -> None:
        """Removes a service by id or name; it may be gone already. Its tasks end afterwards."""
        await self._delete("remove a service", f"services/{service}")

    async def tasks(self, label: str) -> list[Task]:
        """All tasks of services with a label, also of services that were removed while their tasks still end."""
        with self._words("list tasks"):
            return [Task.of(each) for each in await self._docker.tasks.list(filters={"label": label})]

    async def containers(self, service_id: str) -> list[str]:
        """The containers of a service that are on the engine's own node, running or not."""
        filters = json.dumps({"label": [f"com.docker.swarm.service.id={service_id}"]})
        with self._words("list containers"):
            found = await self._docker._query_json("containers/json", params={"all": True, "filters": filters})
        return [each["Id"] for each in found]

    async def end_container(self, container_id: str, grace_s: float) -> None:
        """Stops a container of the engine's own node and removes it with its volumes."""
        try:
            with self._words("stop a container", grace_s + CALL_TIMEOUT_S):
                params = {"t": round(grace_s)}
                async with self._docker._query(f"containers/{container_id}/stop", method="POST", params=params):
                    pass
        except RefusedError as error:
            if error.status != _ABSENT:
                raise
        await self._delete("remove a container", f"containers/{container_id}", v=True, force=True)

    async def container(self, container_id: str) -> dict[str, Any] | None:
        """What the engine says of a container on its own node; None where there is none."""
        return await self._inspect("tell of a container", f"containers/{container_id}/json")

    async def image(self, name: str) -> dict[str, Any] | None:
        """What the engine says of an image on its own node; None where there is none."""
        return await self._inspect("tell of an image", f"images/{name}/json")

    async def remove_volume(self, name: str) -> None:
        """Removes a volume of the engine's own node; it may be gone already."""
        await self._delete("remove a volume", f"volumes/{name}")

    async def _inspect(self, doing: str, path: str) -> dict[str, Any] | None:
        try:
            with self._words(doing):
                return await self._docker._query_json(path)
        except RefusedError as error:
            if error.status == _ABSENT:
                return None
            raise

    async def _delete(self, doing: str, path: str, **params: bool) -> None:
        try:
            with self._words(doing):
                async with self._docker._query(path, method="DELETE", params=params):
                    pass
        except RefusedError as error:
            if error.status != _ABSENT and "already in progress" not in str(error):
                raise

    async def logs(self, task_id: str, tail: int) -> str:
        """The last lines of a task, on whichever node."""
        from aiodocker import multiplexed

        read = cast("Any", multiplexed).multiplexed_result_list
        params = {"stdout": True, "stderr": True, "tail": str(tail)}
        try:
            with self._words("read a log", _LOGS_S):
                async with self._docker._query(f"tasks/{task_id}/logs", params=params) as response:
                    return "".join(await read(response))
        except RefusedError as error:
            if error.status == _ABSENT:
                return ""
            raise

    async def follow(self, task_id: str, on_line: Callable[[str], None]) -> None:
        """Passes a task's lines on until it has ended."""
        from aiodocker import multiplexed

        read = cast("Any", multiplexed).multiplexed_result_stream
        params = {"stdout": True, "stderr": True, "follow": True}
        rest = ""
        with self._words("follow a log", None):
            async with self._docker._query(f"tasks/{task_id}/logs", params=params) as response:
                async for piece in read(response):
                    *lines, rest = f"{rest}{piece}".split("\n")
                    for line in lines:
                        on_line(line)
        if rest:
            on_line(rest)

    async def listen(self, label: str, on_event: Callable[[], None]) -> None:
        """Tells of ends of the containers with a label, on the engine's own node, until the engine goes away."""
        filters = json.dumps({"type": ["container"], "label": [label], "event": ["die", "oom"]})
        with self._words("tell of events", None):
            async with self._docker._query("events", params={"filters": filters}) as response:
                async for line in response.content:
                    if line.strip():
                        on_event()

    async def node(self, node_id: str, *, fresh: bool = False) -> Mapping[str, Any] | None:
        """What the Swarm says of a node; None where it has none of that id."""
        if fresh or node_id not in self._nodes:
            with self._words("list its nodes"):
                self._nodes = {node["ID"]: node for node in await self._docker.nodes.list()}
        return self._nodes.get(node_id)

    async def wait_gone(self, service_id: str, label: str, within_s: float) -> None:
        """Waits until a removed service's tasks have ended, and its containers on this node are gone.

        Raises:
            ProviderError: They are still there when the time is up.
        """
        left: list[str] = []
        pause_s = 0.05
        with anyio.move_on_after(within_s):
            while True:
                tasks = [task for task in await self.tasks(label) if task.service_id == service_id and not task.gone]
                left = [f"task {task.id} ({task.state})" for task in tasks]
                for node_id in {task.node_id for task in tasks if task.node_id}:
                    # On a node that is down nobody can end what is there, or see it.
                    if node_state(await self.node(node_id, fresh=True)) == "down":
                        gone = {f"task {task.id} ({task.state})" for task in tasks if task.node_id == node_id}
                        left = [each for each in left if each not in gone]
                left += [f"container {each[:12]}" for each in await self.containers(service_id)]
                if not left:
                    return
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, 0.5)
        raise ProviderError(
            f"{within_s:g} s after its service was removed, this is still there: {', '.join(left)}. Swarm ends it when "
            "it can; `docker node ls` tells whether a node is in trouble."
        )


def _auth_header(auth: dict[str, str] | None) -> dict[str, str]:
    from aiodocker.utils import compose_auth_header

    return {"X-Registry-Auth": compose_auth_header(auth, auth["serveraddress"])} if auth else {}
