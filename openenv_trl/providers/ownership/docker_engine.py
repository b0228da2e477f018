"""What owners have on a Docker engine: services of its Swarm, containers, networks, volumes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.docker.connection import EngineConnection, open_engine
from openenv_trl.providers.owner import LEASE_LABEL, NAME_LABEL, OWNER_LABEL, THING_LABEL, Owner
from openenv_trl.providers.ownership.things import Inventory, Kind, Thing

# What stands later may be used by what stands before: a service would make its containers again, and a network goes
# only when no container is in it.
_ORDER: tuple[Kind, ...] = ("service", "container", "network", "volume")
_GONE = 404
_BEING_REMOVED = 409  # of containers
_NO_SWARM = (406, 503)
_AT_ONCE = 16
_SETTLE_TRIES = 20
_SETTLE_S = 0.25


class DockerInventory(Inventory):
    """One engine.

    Args:
        docker_host: Its address; found as the docker command does if None.
        settings: Environment variables that say how; this process's if None.
    """

    def __init__(self, docker_host: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._docker_host = docker_host
        self._settings = settings
        self._engine: EngineConnection | None = None

    @property
    def name(self) -> str:
        """The engine's address."""
        where = self._docker_host if self._engine is None else self._engine.address.url
        return f"Docker at {where}" if where else "Docker"

    async def __aenter__(self) -> DockerInventory:
        self._engine = await open_engine(self._docker_host, self._settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._connection.close()

    @property
    def _connection(self) -> EngineConnection:
        assert self._engine is not None, "open it first"
        return self._engine

    async def list(self, owner_id: str | None = None) -> list[Thing]:
        """Return the engine's things, in the order in which they are to be removed."""
        label = OWNER_LABEL if owner_id is None else f"{OWNER_LABEL}={owner_id}"
        filters = json.dumps({"label": [label]})
        found: list[Thing | None] = []
        with self._in_words("list what it has"):
            for each in await self._services(filters):
                spec = each["Spec"]
                found.append(_thing("service", each["ID"], spec["Name"], spec.get("Labels"), "service", each))
            images: dict[str, Mapping[str, str] | None] = {}
            for each in await self._ask("containers/json", {"all": "true", "filters": filters}):
                name = each["Names"][0].lstrip("/") if each.get("Names") else each["Id"][:12]
                if await self._is_own(name, each, images):
                    found.append(_thing("container", each["Id"], name, each.get("Labels"), each["State"], each))
            for each in await self._ask("networks", {"filters": filters}):
                found.append(_thing("network", each["Id"], each["Name"], each.get("Labels"), each["Driver"], each))
            volumes = await self._ask("volumes", {"filters": filters})
            for each in volumes.get("Volumes") or ():
                found.append(_thing("volume", each["Name"], each["Name"], each.get("Labels"), each["Driver"], each))
        return [thing for thing in found if thing is not None]

    async def remove(self, things: Sequence[Thing]) -> list[str]:
        """Remove things by force: services first, then containers with their volumes, networks, volumes."""
        failures: list[str] = []
        for kind in _ORDER:
            limiter = anyio.CapacityLimiter(_AT_ONCE)
            async with anyio.create_task_group() as tasks:
                for thing in things:
                    if thing.kind == kind:
                        tasks.start_soon(self._remove, thing, limiter, failures)
        return failures

    async def _remove(self, thing: Thing, limiter: anyio.CapacityLimiter, failures: list[str]) -> None:
        remove: dict[Kind, Callable[[], Awaitable[Any]]] = {
            "service": lambda: self._delete(f"services/{thing.id}"),
            "container": lambda: self._delete(f"containers/{thing.id}", {"force": "true", "v": "true"}),
            "network": lambda: self._remove_network(thing.id),
            "volume": lambda: self._delete(f"volumes/{thing.id}", {"force": "true"}),
        }
        try:
            async with limiter:
                with self._in_words(f"remove the {thing.kind} {thing.name}"):
                    await remove[thing.kind]()
        except ProviderError as error:
            failures.append(str(error))

    async def _remove_network(self, network_id: str) -> None:
        from aiodocker.exceptions import DockerError

        for left in reversed(range(_SETTLE_TRIES)):
            try:
                await self._delete(f"networks/{network_id}")
                return
            except DockerError as error:
                # Containers that were removed just now leave it a moment later.
                if error.status != 403 or not left:
                    raise
            await anyio.sleep(_SETTLE_S)

    async def _is_own(
        self, name: str, container: Mapping[str, Any], images: dict[str, Mapping[str, str] | None]
    ) -> bool:
        """Whether a container's labels are its own, and none that it has from an image.

        What `docker commit` makes of a container of ours has its labels, and so has whatever somebody runs from it.
        """
        labels: Mapping[str, str] = container.get("Labels") or {}
        if labels.get(THING_LABEL):
            # A service's tasks are called after it.
            return name == labels[THING_LABEL] or name.startswith(f"{labels[THING_LABEL]}.")
        # Not every container was given its name: then the image is asked.
        image = container["ImageID"]
        if image not in images:
            images[image] = await self._image_labels(image)
        passed_on = images[image]
        return passed_on is not None and passed_on.get(OWNER_LABEL) != labels.get(OWNER_LABEL)

    async def _image_labels(self, image: str) -> Mapping[str, str] | None:
        """An image's labels; None where it is gone and nobody knows."""
        from aiodocker.exceptions import DockerError

        try:
            described = await self._ask(f"images/{image}/json")
        except DockerError as error:
            if error.status != _GONE:
                raise
            return None
        config: dict[str, Any] = described.get("Config") or {}
        return config.get("Labels") or {}

    async def _services(self, filters: str) -> Sequence[Any]:
        from aiodocker.exceptions import DockerError

        try:
            return await self._ask("services", {"filters": filters})
        except DockerError as error:
            if error.status in _NO_SWARM:
                return ()
            raise

    async def _ask(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        return await self._connection.docker._query_json(path, params=params)

    async def _delete(self, path: str, params: Mapping[str, str] | None = None) -> None:
        from aiodocker.exceptions import DockerError

        try:
            async with self._connection.docker._query(path, method="DELETE", params=params):
                pass
        except DockerError as error:
            if error.status != _GONE and not (error.status == _BEING_REMOVED and path.startswith("containers/")):
                raise

    @contextmanager
    def _in_words(self, doing: str) -> Generator[None]:
        from aiodocker.exceptions import DockerError

        try:
            with self._connection.call():
                yield
        except DockerError as refused:
            address = self._connection.address.url
            raise ProviderError(f"The Docker engine at {address} refused to {doing}: {refused.message}") from refused


def _thing(kind: Kind, thing_id: str, name: str, labels: Any, state: str, described: Mapping[str, Any]) -> Thing | None:
    owner = Owner.from_labels(labels or {})
    if owner is None:
        return None
    lease_s = None
    with suppress(KeyError, ValueError):
        lease_s = float(labels[LEASE_LABEL])
    created = described.get("Created") or described.get("CreatedAt")
    return Thing(kind, thing_id, labels.get(NAME_LABEL) or name, owner, state, _seconds(created), lease_s)


def _seconds(when: Any) -> float | None:
    """Docker writes seconds, or RFC 3339 with nanoseconds."""
    if isinstance(when, int):
        return float(when)
    with suppress(ValueError, TypeError):
        text = str(when).replace("Z", "+00:00")
        head, dot, rest = text.partition(".")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        return datetime.fromisoformat(
            f"{head}{dot}{rest[:digits][:6].ljust(6, '0')}{rest[digits:]}" if dot else text
        ).timestamp()
    return None
