"""How replicas become services and tasks, are watched, and are taken away again: the provider's inner half.

Swarm cannot be told which task of a service to end: scaling down, it chooses. A pool must end exactly the idle replica,
so each replica is a service of its own with one task, and all of them are one stack to ``docker stack``. Where it is
asked for, ``start`` makes one service of all its replicas; each task of it is still a replica with its own address.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import anyio

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers.base import Endpoint, Replica, ReplicaExit
from openenv_trl.providers.container_calls import ContainerCalls
from openenv_trl.providers.logs import logger
from openenv_trl.providers.owner import OWNER_LABEL, this_owner
from openenv_trl.providers.spec import ServerSpec
from openenv_trl.providers.swarm.engine import SwarmEngine
from openenv_trl.providers.swarm.membership import check_network, join, with_defaults
from openenv_trl.providers.swarm.nodes import node_address, node_name, node_state
from openenv_trl.providers.swarm.places import Place, Service
from openenv_trl.providers.swarm.refusals import mebibytes, no_node, not_started, slow_pull
from openenv_trl.providers.swarm.registry import registry_auth
from openenv_trl.providers.swarm.service import service_definition, service_name
from openenv_trl.providers.swarm.spec import SwarmSpec
from openenv_trl.providers.swarm.tasks import Task, judge, newest, why_ended
from openenv_trl.providers.swarm.watch import TaskWatch

_TAIL = 60
# Beyond the servers' own grace: Swarm hands on orders once a second or so, and a busy node takes its time.
_GONE_S = 60.0


class SwarmKeeper(ContainerCalls[SwarmSpec]):
    """What `DockerSwarmProvider` does on its own loop."""

    SPEC = SwarmSpec

    def __init__(
        self,
        spec: SwarmSpec | str | None,
        docker_host: str | None,
        on_exit: Callable[[ReplicaExit], None] | None,
        on_log: Callable[[str, str], None] | None,
        fields: dict[str, Any],
    ) -> None:
        super().__init__(spec, on_exit=on_exit, on_log=on_log, **fields)
        self._given_host = docker_host
        self._places: dict[str, Place] = {}
        self._unfilled: list[int] = []
        self._shared: Service | None = None
        self._sharing = anyio.Lock()
        self._suffix = uuid.uuid4().hex[:8]
        self._swarm: SwarmEngine | None = None
        self._volumes: tuple[str, ...] = ()
        self._watching: Future[Any] | None = None

    @property
    def _docker_host(self) -> str | None:
        return self._given_host or (None if self._spec is None else self._spec.docker_host)

    async def _start_all(self, spec: ServerSpec | None, ready: bool) -> Endpoint:
        if not self._kept:
            wanted = self.spec if spec is None else self._own_spec(spec)
            self._shared = None
            self._unfilled = list(range(1, wanted.replicas + 1)) if wanted.shares_service else []
        return await super()._start_all(spec, ready)

    def _start_count(self) -> int:
        return 1 if self.spec.publish == "ingress" else self.spec.replicas

    def _default_name(self) -> str:
        return self.spec.image.rpartition("/")[2].partition("@")[0].partition(":")[0]

    # The engine.

    async def _connect(self) -> None:
        self._swarm = await SwarmEngine.open(self._docker_host)
        await join(self._swarm, self.spec)
        await self._prepare()
        self._watch = TaskWatch(self._swarm, self._label, self.spec.poll_s, self._compare)
        self._watching = await self._spawn(self._watch.run)

    async def _disconnect(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._swarm is not None:
            await self._swarm.close()
            self._swarm = None

    async def _prepare(self) -> None:
        """Fills in what the image says of itself, and looks whether the network fits."""
        image = await self._manager.image(self.spec.image) or {}
        config: dict[str, Any] = image.get("Config") or {}
        volumes: dict[str, Any] = config.get("Volumes") or {}
        self._volumes = tuple(volumes)
        self._filled = with_defaults(self.spec, config.get("Labels") or {})
        await check_network(self._manager, self._filled)

    @property
    def _manager(self) -> SwarmEngine:
        assert self._swarm is not None
        return self._swarm

    @property
    def _label(self) -> str:
        return f"{OWNER_LABEL}={this_owner().id}"

    # Coming.

    async def _launch(self, name: str) -> Replica:
        try:
            place = await self._find_place(name)
            await self._settle(name, place)
            return Replica(await self._address(place), name, place.tasks[place.slots[0]].id)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._leave(name)
            raise

    async def _find_place(self, name: str) -> Place:
        """Takes slots of the service that all share, or of a new one."""
        if not self._unfilled:
            service = Service(service_name(name, self._suffix), 1)
            self._places[name] = place = Place(service, (1,))
            await self._make(service, name)
            return place
        if self.spec.publish == "ingress":
            slots, self._unfilled = tuple(self._unfilled), []
        else:
            slots = (self._unfilled.pop(0),)
        async with self._sharing:
            if self._shared is not None:
                self._places[name] = place = Place(self._shared, slots)
                return place
            self._shared = Service(service_name(self._base_name(), self._suffix), self.spec.replicas)
            self._places[name] = place = Place(self._shared, slots)
            await self._make(self._shared, self._base_name())
        return place

    def _definition(self, service: Service, replica_name: str) -> dict[str, Any]:
        variables = self._lease_variables(replica_name)
        lease_s: float | None = self.spec.lease_s
        if self.spec.publish == "ingress" and service.slots > 1:
            # The mesh brings a renewal to one of the servers only: the others would end while their owner lives.
            variables, lease_s = this_owner().variables(), None
        return service_definition(
            self._filled,
            name=service.name,
            labels=this_owner().labels(replica_name, lease_s, service.name),
            stack=service_name(self._base_name(), self._suffix),
            variables=variables,
            volumes=self._volumes,
            tasks=service.slots,
        )

    async def _make(self, service: Service, replica_name: str) -> None:
        definition = self._definition(service, replica_name)
        # An engine that was asked may answer after its asker has been cancelled; then nobody would know the service.
        with anyio.CancelScope(shield=True):
            service.id = await self._manager.create(definition, registry_auth(self.spec))

    async def _settle(self, name: str, place: Place) -> None:
        """Waits until tasks run in all slots of a place."""
        began: dict[int, float] = {}
        homeless_since: dict[int, float] = {}
        with self._watch.hurrying():
            while len(place.tasks) < len(place.slots):
                await self._watch.next_look()
                now = anyio.current_time()
                for slot in place.slots:
                    tasks = self._watch.of(place.service.id)
                    # One that was started again is no better: an image that ends at once would do so for ever.
                    failed = next((task for task in tasks if task.slot == slot and task.ended), None)
                    if failed is not None:
                        raise await self._start_error(name, failed)
                    task = newest(tasks, slot)
                    if task is None or task.homeless:
                        if now - homeless_since.setdefault(slot, now) > self.spec.schedule_timeout_s:
                            raise ServerStartError(no_node(name, self.spec, task))
                        continue
                    if now - began.setdefault(slot, now) > self.spec.pull_timeout_s:
                        raise ServerStartError(slow_pull(name, self.spec, task))
                    if task.runs and (self.spec.publish != "host" or self.spec.port in task.ports):
                        place.tasks[slot] = task
        await self._note_tasks(name, place)

    async def _start_error(self, name: str, task: Task) -> ServerStartError:
        _, tail, reason = await self._obituary(task, service_there=True)
        node = node_name(await self._manager.node(task.node_id))
        text = not_started(name, self.spec, task, node, reason, bool(tail.strip()))
        return ServerStartError(text, log_tail=tail)

    async def _address(self, place: Place) -> str:
        task = place.tasks[place.slots[0]]
        if self.spec.publish == "network":
            assert self.spec.overlay_network is not None
            host, port = task.addresses[self.spec.overlay_network], self.spec.port
        elif self.spec.publish == "host":
            host = await self._host(task.node_id)
            port = task.ports[self.spec.port]
        else:
            host = await self._host(self._manager.node_id)
            port = await self._manager.mesh_port(place.service.id)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def _host(self, node_id: str) -> str:
        return node_address(await self._manager.node(node_id), self.spec.node_addresses, self._manager.where)

    async def _note_tasks(self, name: str, place: Place) -> None:
        """Takes note of what a place's new tasks have, and passes their logs on."""
        for task in place.tasks.values():
            if task.node_id == self._manager.node_id and task.id not in place.followed:
                found = await self._manager.container(task.container_id) or {}
                mounts: list[dict[str, str]] = found.get("Mounts") or []
                place.service.volumes.update(each["Name"] for each in mounts if each["Type"] == "volume")
        if self._on_log is None and self.spec.log_path is None:
            return
        for task in place.tasks.values():
            if task.id not in place.followed:
                place.followed[task.id] = await self._spawn(self._pass_on, name, task.id)

    async def _pass_on(self, name: str, task_id: str) -> None:
        try:
            await self._manager.follow(task_id, lambda line: self._sink.line(name, line))
        except ProviderError:
            return  # the engine went away, and with it the log

    # Going.

    async def _remove(self, replica: Replica) -> None:
        await self._leave(replica.name)

    async def _leave(self, name: str) -> None:
        """Ends what runs at a replica's place, and its service where no other replica is there."""
        place = self._places.pop(name, None)
        if place is None:
            return
        place.stop_following()
        service = place.service
        if all(each.service is not service for each in self._places.values()):
            await self._dissolve(service)
        elif not self._stopping:
            for task in place.tasks.values():
                await self._end_task(task)

    async def _end_task(self, task: Task) -> None:
        """Ends one task of a service that stays, with its container and volumes."""
        # On another node nobody can do that; its server ends by its lease, which is not renewed any more.
        if task.node_id == self._manager.node_id and task.container_id:
            await self._manager.end_container(task.container_id, self.spec.stop_grace_s)

    async def _dissolve(self, service: Service) -> None:
        if service is self._shared:
            self._shared = None
        service.id = service.id or await self._manager.id_of(service.name)
        if not service.id:
            return
        await self._manager.remove(service.id)
        await self._manager.wait_gone(service.id, self._label, self.spec.stop_grace_s + _GONE_S)
        for volume in service.volumes:
            await self._manager.remove_volume(volume)

    # Watching.

    async def _compare(self, tasks: list[Task]) -> None:
        """Tells of what has ended since the last look."""
        async with anyio.create_task_group() as group:
            for name, place in list(self._places.items()):
                if place.tasks and not place.updating:
                    own = [task for task in tasks if task.service_id == place.service.id]
                    group.start_soon(self._compare_or_wait, name, place, own)

    async def _compare_or_wait(self, name: str, place: Place, tasks: list[Task]) -> None:
        try:
            await self._compare_place(name, place, tasks)
        except ProviderError as error:
            logger.debug("%s: %s", name, error)  # what could not be told now is told after the next look

    async def _compare_place(self, name: str, place: Place, tasks: list[Task]) -> None:
        restarts = self.spec.restart == "on-failure"
        for slot, known in list(place.tasks.items()):
            verdict = judge(known, tasks, restarts)
            if verdict.ended is None:
                place.tasks[slot] = next((task for task in tasks if task.id == known.id), known)
                continue
            there = verdict.ended.gone or await self._manager.service(place.service.id) is not None
            code, tail, reason = await self._obituary(verdict.ended, service_there=there)
            restarting = restarts and verdict.successor is not None
            if restarting:
                assert verdict.successor is not None
                place.tasks[slot] = verdict.successor
                place.moved = True
            else:
                del place.tasks[slot]
            if len(place.slots) == 1 or not place.tasks:
                self._note_exit(name, code, tail, reason, restarting=restarting)
            # Where others stand behind the same address, it still answers.
        if place.moved and place.tasks and all(task.runs for task in place.tasks.values()):
            await self._note_address(name, place)

    async def _note_address(self, name: str, place: Place) -> None:
        kept = self._kept.get(name)
        task = place.tasks.get(place.slots[0])
        if kept is None or task is None or (self.spec.publish == "host" and self.spec.port not in task.ports):
            return
        kept.replica = replace(kept.replica, base_url=await self._address(place), id=task.id)
        place.moved = False
        await self._note_tasks(name, place)

    async def _obituary(self, task: Task, *, service_there: bool) -> tuple[int | None, str, str]:
        """A task's exit code, its last lines, and why it has ended where more is known."""
        node = node_state(await self._manager.node(task.node_id, fresh=True))
        tail = ""
        if service_there and node != "down" and task.container_id:
            try:
                tail = await self._manager.logs(task.id, _TAIL)
            except ProviderError as error:
                tail = f"(its log cannot be read: {error})"
        reason = why_ended(task, service_there=service_there, node_state=node)
        if not reason and task.exit_code == 137:
            here = task.node_id == self._manager.node_id
            memory = self._filled.memory
            limit = "" if memory is None else f" (memory={mebibytes(memory)})"
            if here and (await self._manager.container(task.container_id) or {"State": {}})["State"].get("OOMKilled"):
                reason = f"out of memory{limit}"
            elif not here:
                reason = f"killed (exit code 137), as a server is that runs out of memory{limit}"
        return (task.exit_code if task.gone else None), tail, reason

    async def _is_alive(self, replica: Replica) -> bool:
        place = self._places.get(replica.name)
        if place is None or not place.tasks:
            return False
        known = {task.id for task in place.tasks.values()}
        return any(task.id in known and task.runs for task in await self._manager.tasks(self._label))

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        place = self._places.get(replica.name)
        if place is None:
            return ""
        return "".join([await self._manager.logs(task.id, tail) for task in place.tasks.values()])
