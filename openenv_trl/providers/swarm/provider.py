"""Environment servers as services of a Docker Swarm."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers.base import Endpoint, ReplicaExit, run_sync
from openenv_trl.providers.swarm.keeper import SwarmKeeper
from openenv_trl.providers.swarm.places import Place, Service
from openenv_trl.providers.swarm.refusals import no_node
from openenv_trl.providers.swarm.registry import registry_auth
from openenv_trl.providers.swarm.spec import SwarmSpec
from openenv_trl.providers.swarm.tasks import Task

_LOOK_S = 0.1
_TURN_S = 60.0
"""How long a slot may hold two tasks when an update is over."""
_PUBLIC_NAMES = {"cpu_limit": "cpus", "memory_limit": "memory"}


class DockerSwarmProvider(SwarmKeeper):
    """Runs servers as services of a Swarm; the engine that it uses is one of the Swarm's managers.

    Args:
        spec: What to run, or just its image; None where the fields say it, or ``start`` or ``start_container`` is
            given it.
        docker_host: A manager's address, such as ``tcp://manager:2376``, over the spec's.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider's own.
        on_log: Called with the replica's name and one line, from a thread of the provider's own.
        **fields: The spec's fields, in place of a spec. The public package's ``cpu_limit`` and ``memory_limit`` are
            taken as ``cpus`` and ``memory``.

    Example:
        >>> with DockerSwarmProvider(image="echo-env:latest", replicas=4, memory="512m") as servers:
        ...     print(servers.base_urls)
    """

    def __init__(
        self,
        spec: SwarmSpec | str | None = None,
        *,
        docker_host: str | None = None,
        on_exit: Callable[[ReplicaExit], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(spec, docker_host, on_exit, on_log, _own_names(fields))

    async def restart(self, spec: SwarmSpec | None = None) -> Endpoint:
        """Replaces all replicas, some at a time, as ``update_order`` and ``update_parallelism`` say.

        With ``start-first`` a new server is ready before the old one ends; the sessions on the old one end with it. The
        new servers have addresses of their own. A replica with a service of its own is ready when it answers its health
        check. Where replicas share a service, Swarm replaces the tasks, and its word for ready is running: with
        ``image_health_check``, when the image's HEALTHCHECK has passed.

        Args:
            spec: What to run from now on, such as another image; the same again if None.

        Raises:
            ServerStartError: A new server did not become ready; replicas that were not yet replaced run on.
            ProviderError: Nothing runs, or the engine does not answer.
        """
        if not self.replicas:
            raise ProviderError("this provider runs nothing that could be restarted; start it first")
        before, wanted = self.spec, self.spec if spec is None else self._own_spec(spec)
        for fixed in ("publish", "one_service", "name"):
            if getattr(wanted, fixed) != getattr(before, fixed):
                raise ProviderError(f"{fixed} cannot change in a restart; stop the provider and start it again")
        self._spec = wanted
        try:
            await self._engine.call(self._restart_all)
        except BaseException:
            self._spec = before
            raise
        return Endpoint(self._base_name(), tuple(self.replicas))

    def restart_sync(self, spec: SwarmSpec | None = None) -> Endpoint:
        """Does what ``restart`` does, for callers without an event loop, and for notebooks."""
        return run_sync(self.restart, spec)

    async def _restart_all(self) -> None:
        await self._prepare()
        names = [replica.name for replica in self.replicas]
        sharing = [name for name in names if self._places[name].service is self._shared]
        if sharing:
            await self._update_shared({name: self._places[name] for name in sharing})
        failures: list[Exception] = []
        limiter = anyio.CapacityLimiter(self.spec.update_parallelism)

        async def one(name: str, scope: anyio.CancelScope) -> None:
            async with limiter:
                try:
                    if self.spec.update_order == "stop-first":
                        await self._end(name)
                    await self._begin()
                    await self._end(name)
                except Exception as error:
                    failures.append(error)
                    scope.cancel()

        async with anyio.create_task_group() as group:
            for name in names:
                if name not in sharing:
                    group.start_soon(one, name, group.cancel_scope)
        if failures:
            raise failures[0]

    async def _update_shared(self, places: Mapping[str, Place]) -> None:
        """Lets Swarm replace the tasks of the service that replicas share, and takes over the new ones."""
        service = next(iter(places.values())).service
        before = {task.id for task in self._watch.of(service.id)}
        for place in places.values():
            place.updating = True
        try:
            definition = self._definition(service, self._base_name())
            await self._manager.update(service.id, definition, registry_auth(self.spec))
            await self._wait_updated(service, before)
            for name, place in places.items():
                await self._take_over(name, place)
                await self._await_fresh(name, place)
        except ServerStartError:
            await self._go_back(service)
            for name, place in places.items():
                await self._take_over(name, place)
                with contextlib.suppress(ServerStartError):
                    await self._await_fresh(name, place)
            raise
        except BaseException:
            with anyio.CancelScope(shield=True):
                for name, place in places.items():
                    await self._take_over(name, place)
            raise
        finally:
            for place in places.values():
                place.updating = False
        await self._end_surplus(service, before)

    async def _take_over(self, name: str, place: Place) -> None:
        """Makes the tasks that run in a place's slots the replica's; where there are none, the next look tells."""
        tasks: list[Task] = []
        with anyio.move_on_after(_TURN_S):
            while True:
                tasks = [each for each in await self._manager.tasks(self._label) if each.service_id == place.service.id]
                tasks = [each for each in tasks if each.slot in place.slots and not each.ended]
                # While Swarm goes back, a bad task can run beside the one that is to follow it.
                if len({each.slot for each in tasks}) == len(tasks) and all(each.runs for each in tasks):
                    break
                await anyio.sleep(_LOOK_S)
        place.tasks.update({each.slot: each for each in tasks if each.runs})
        await self._note_address(name, place)

    async def _await_fresh(self, name: str, place: Place) -> None:
        """Waits until a replica answers from its new tasks."""
        replica, known = self._kept[name].replica, {task.id for task in place.tasks.values()}

        def ended() -> Task | None:
            return next((each for each in self._watch.of(place.service.id) if each.id in known and each.ended), None)

        last = await self._health(replica, self.spec.ready_timeout_s, lambda: ended() is not None)
        failed = ended()
        if failed is not None:
            raise await self._start_error(name, failed)
        if last:
            raise ServerStartError(
                f"{name} was not ready within {self.spec.ready_timeout_s:g} s after its restart: GET "
                f"{replica.base_url}{self.spec.health_path}: {last}. Raise ready_timeout_s, or look at what it wrote:",
                log_tail=await self._read_logs(replica, 60),
            )

    async def _go_back(self, service: Service) -> None:
        """Has the old servers back, where Swarm took the new ones for good."""
        if await self._update_state(service) != "completed":
            return
        await self._manager.roll_back(service.id)
        with anyio.move_on_after(self.spec.schedule_timeout_s + self.spec.pull_timeout_s):
            while True:
                if await self._update_state(service) in ("rollback_completed", "rollback_paused", "removed"):
                    return
                await anyio.sleep(_LOOK_S)

    async def _update_state(self, service: Service) -> str:
        found = await self._manager.service(service.id)
        status: Mapping[str, str] = {"State": "removed"} if found is None else found.get("UpdateStatus") or {}
        return status.get("State", "")

    async def _end_surplus(self, service: Service, before: set[str]) -> None:
        """Ends what Swarm has put in the slots of replicas that had died or were removed."""
        taken = {slot for place in self._places.values() if place.service is service for slot in place.tasks}
        for task in await self._new_tasks(service, before):
            if not task.ended and task.slot not in taken:
                await self._end_task(task)

    async def _wait_updated(self, service: Service, before: set[str]) -> None:
        """Waits until Swarm has replaced a service's tasks; where it cannot, until it has gone back to the old ones."""
        homeless_since: dict[str, float] = {}
        problem = ""
        while True:
            found = await self._manager.service(service.id)
            if found is None:
                raise ProviderError("the service was removed from the Swarm while it was restarted")
            status: Mapping[str, str] = found.get("UpdateStatus") or {}
            state = status.get("State", "")
            if state == "completed" and not problem:
                return
            if state in ("completed", "paused", "rollback_completed", "rollback_paused"):
                raise ServerStartError(
                    f"Swarm did not replace the servers of {service.name} ({state}): "
                    f"{problem or await self._update_problem(service, before) or status.get('Message', '')}"
                )
            now = anyio.current_time()
            for task in await self._new_tasks(service, before):
                waits = task.homeless and now - homeless_since.setdefault(task.id, now)
                if waits > self.spec.schedule_timeout_s and not problem:
                    problem = no_node(service.name, self.spec, task)
                    await self._manager.roll_back(service.id)
            await anyio.sleep(_LOOK_S)

    async def _new_tasks(self, service: Service, before: set[str]) -> list[Task]:
        tasks = await self._manager.tasks(self._label)
        return [task for task in tasks if task.service_id == service.id and task.id not in before]

    async def _update_problem(self, service: Service, before: set[str]) -> str:
        """Why the first of the new tasks that has failed did so."""
        failed = [task for task in await self._new_tasks(service, before) if task.state in ("failed", "rejected")]
        if not failed:
            return ""
        return str(await self._start_error(service.name, min(failed, key=lambda task: task.created)))

    def _spec_over(
        self, image: str | None, port: int | None, env_vars: Mapping[str, str] | None, fields: Mapping[str, Any]
    ) -> SwarmSpec:
        return super()._spec_over(image, port, env_vars, _own_names(fields))


def _own_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as a spec has them: by its names, with lists where the public package takes a text too."""
    own = {_PUBLIC_NAMES.get(key, key): value for key, value in fields.items()}
    if isinstance(command := own.get("command"), str):
        own["command"] = shlex.split(command)
    if isinstance(constraints := own.get("constraints"), str):
        own["constraints"] = [constraints]
    return own
