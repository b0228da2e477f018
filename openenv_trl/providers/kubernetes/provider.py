"""Environment servers on Kubernetes: one Job for each replica.

Why Jobs, and not a Deployment: sessions live in one server, so a pool has to remove exactly the replica that is idle,
which a Deployment that is scaled down does not let it choose; and the pool replaces what has died, so a controller that
also does would work against it. Why not bare pods: nothing removes a pod that has ended, while a Job with
``ttlSecondsAfterFinished`` is removed by the cluster itself. So when an owner dies, its servers' leases end them, their
Jobs are finished, and the cluster removes Jobs and pods without anybody's help. A Job whose server never came to run
has no lease that could end it: until then it has a deadline (``activeDeadlineSeconds``), which is taken off when the
server runs. That is when all else is dead too; usually the reaper beside each owner deletes the Jobs much sooner, and
where the owner itself runs in a pod, they go with that pod.

Whatever else a replica has (a NetworkPolicy, a Service) is of its own and owned by its Job, so nothing is shared that
could be left behind. It is made right after the Job: the other way round, an owner that dies in between would leave it
for ever. A NetworkPolicy is therefore there some milliseconds after the Job, and long before the first session.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import anyio
from anyio.abc import TaskGroup

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers.base import Replica
from openenv_trl.providers.container_calls import ContainerCalls
from openenv_trl.providers.kubernetes import manifests
from openenv_trl.providers.kubernetes.api import JOBS, NETWORK_POLICIES, PODS, SERVICES, ClusterApi, Object
from openenv_trl.providers.kubernetes.credentials import find_cluster, own_pod
from openenv_trl.providers.kubernetes.diagnosis import Diagnosis, cannot_start
from openenv_trl.providers.kubernetes.faults import ApiFault
from openenv_trl.providers.kubernetes.log_follower import LogFollower
from openenv_trl.providers.kubernetes.names import object_name
from openenv_trl.providers.kubernetes.pod_state import Ended, PodState, is_over, read_pod
from openenv_trl.providers.kubernetes.port_forward import PortForward
from openenv_trl.providers.kubernetes.spec import KubernetesSpec
from openenv_trl.providers.kubernetes.watching import Watch
from openenv_trl.providers.logs import logger
from openenv_trl.providers.owner import this_owner

_EVENTS_AFTER_S = 2.0
_GONE_MARGIN_S = 20.0
_LOG_S = 5.0


class _Running:
    """What is kept of one replica's objects."""

    def __init__(self, name: str, job: str) -> None:
        self.name = name
        self.job = job
        self.pod = ""
        self.forward: PortForward | None = None
        self.tasks: list[Future[Any]] = []
        self.told = False
        """Whether its end was taken note of."""


class KubernetesProvider(ContainerCalls[KubernetesSpec]):
    """Runs environment servers as Jobs of a Kubernetes cluster. Needs the extra ``kubernetes``.

    Args:
        spec: What to run; None where the fields say it, or ``start`` is given it.
        on_exit: Called when a ready replica ends by itself, from a thread of the provider's own.
        on_log: Called with the replica's name and one line, from a thread of the provider's own.
        **fields: The fields of a `KubernetesSpec`, in place of one.

    Example:
        >>> with KubernetesProvider(image="registry.example/echo-env:1", replicas=8, namespace="rollouts") as servers:
        ...     print(servers.base_urls)
    """

    SPEC = KubernetesSpec

    _api: ClusterApi
    _watch: Watch
    _tasks: TaskGroup
    _watching: Future[Any] | None = None

    def _place(self) -> dict[str, Any]:
        spec = self.spec
        kubeconfig = None if spec.kubeconfig is None else os.path.abspath(spec.kubeconfig.expanduser())
        where = {"namespace": spec.namespace, "context": spec.context, "in_cluster": spec.in_cluster}
        return {"type": "kubernetes", "kubeconfig": kubeconfig, **where}

    async def _connect(self) -> None:
        self._group = secrets.token_hex(8)
        self._running: dict[str, _Running] = {}
        cluster = await find_cluster(self.spec)
        self._api = cluster.api
        self._diagnosis = Diagnosis(cluster.api)
        access = self.spec.access
        self._access = ("pod-ip" if cluster.in_cluster else "port-forward") if access == "auto" else access
        pod = await own_pod(cluster.api) if cluster.in_cluster else None
        self._owners = [] if pod is None else [manifests.owner_reference(pod)]
        self._watch = Watch(
            cluster.api, PODS, f"{manifests.GROUP_LABEL}={self._group}", self._pod_changed, self._pod_gone
        )
        await self._watch.begin()
        self._watching = await self._spawn(self._follow)

    async def _disconnect(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if hasattr(self, "_api"):
            await self._api.close()

    async def _follow(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            await self._watch.run()

    async def _launch(self, name: str) -> Replica:
        running = _Running(name, object_name(name, secrets.token_hex(4)))
        self._running[running.job] = running
        try:
            await self._create(running)
            state = await self._until_running(running)
            running.pod = state.name
            # From here on its lease ends it.
            await self._api.patch(JOBS, running.job, {"spec": {"activeDeadlineSeconds": self.spec.max_lifetime_s}})
            base_url = await self._address(running, state)
            if self.spec.log_path is not None or self._on_log is not None:
                follower = LogFollower(self._api, state.name, lambda line: self._sink.line(name, line))
                running.tasks.append(await self._spawn(follower.run))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._clear(running)
            raise
        return Replica(base_url, name, state.name)

    async def _create(self, running: _Running) -> None:
        spec = self.spec
        labels = manifests.replica_labels(
            spec, this_owner().labels(running.name, spec.lease_s), running.job, self._group
        )
        variables = {**spec.env_vars, **self._lease_variables(running.name)}
        created = await self._api.create(
            JOBS,
            manifests.job(
                spec,
                object_name=running.job,
                name=running.name,
                labels=labels,
                variables=variables,
                owners=self._owners,
                deadline_s=math.ceil(spec.pending_timeout_s + spec.lease_s),
            ),
        )
        owned = [manifests.owner_reference({"apiVersion": "batch/v1", "kind": "Job", **created})]
        its_own = (running.job, {manifests.REPLICA_LABEL: running.job}, labels, spec.port, owned)
        if spec.network == "internal":
            await self._api.create(NETWORK_POLICIES, manifests.network_policy(*its_own))
        if self._access == "service":
            await self._api.create(SERVICES, manifests.service(*its_own))

    async def _until_running(self, running: _Running) -> PodState:
        """Wait until the pod has a node, an image and an address."""
        what, seen = "the cluster has not made its pod yet", False
        with anyio.move_on_after(self.spec.pending_timeout_s):
            while True:
                news = self._watch.news
                state = self._state_of(running)
                if state is None and seen:
                    raise ServerStartError(f"{running.name} cannot start: its pod was deleted while it was starting.")
                if state is None:
                    with anyio.move_on_after(_EVENTS_AFTER_S):
                        await news.wait()
                        continue
                    what = await self._diagnosis.no_pod(running.name, running.job) or what
                    continue
                seen = True
                if state.ended is not None:
                    raise await self._diagnosis.ended_early(running.name, state, state.ended)
                if state.problem and state.hopeless:
                    raise cannot_start(running.name, state)
                if state.running and state.ip:
                    return state
                what = state.problem or what
                await news.wait()
        told = await self._diagnosis.warnings("Pod", self._pod_name(running))
        raise ServerStartError(
            f"{running.name} had no running container within {self.spec.pending_timeout_s:g} s: {what}."
            f"{f' The cluster says: {told}.' if told and told not in what else ''} Raise pending_timeout_s if the "
            "cluster is still making room, ask for less cpus or memory, or look at node_selector and tolerations."
        )

    async def _address(self, running: _Running, state: PodState) -> str:
        port = self.spec.port
        if self._access == "service":
            return f"http://{running.job}.{self._api.namespace}.svc:{port}"
        if self._access == "pod-ip":
            return f"http://[{state.ip}]:{port}" if ":" in state.ip else f"http://{state.ip}:{port}"
        running.forward = PortForward(self._api, state.name, port)
        address = await running.forward.open()
        running.tasks.append(await self._spawn(running.forward.run))
        return address

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        running = self._by_name(replica.name)
        begun = anyio.current_time()
        if running is not None and running.forward is not None:
            # Each question through the API server costs it a connection: the node's own are asked for first.
            with anyio.move_on_after(timeout_s):
                await self._until_ready(running)
            timeout_s = max(1.0, timeout_s - (anyio.current_time() - begun))
        last = await super()._health(replica, timeout_s, ended)
        state = None if running is None else self._state_of(running)
        if not last or running is None or state is None or not state.ready:
            return last
        if running.forward is not None:
            return f"the node finds it ready, but no connection is carried to it: {running.forward.last_error or last}"
        return (
            f"the node finds it ready, but it cannot be reached from here ({last}): set access to port-forward, or run "
            "this inside the cluster"
        )

    async def _until_ready(self, running: _Running) -> None:
        while True:
            news = self._watch.news
            state = self._state_of(running)
            if state is None or state.ready or state.ended is not None:
                return
            await news.wait()

    async def _remove(self, replica: Replica) -> None:
        running = self._by_name(replica.name)
        if running is not None:
            await self._clear(running)

    async def _clear(self, running: _Running) -> None:
        """Delete a replica's Job, and wait until its server has ended: the pod's remains are the cluster's to clear."""
        running.told = True
        for task in running.tasks:
            task.cancel()
        if running.forward is not None:
            await running.forward.close()
        try:
            await self._api.delete(JOBS, running.job)
            if pod := self._pod_name(running):
                # The cluster would delete it too, when it gets to it.
                await self._api.delete(PODS, pod)
            if await self._gone_within(running, self.spec.stop_grace_s + _GONE_MARGIN_S):
                return
            pod = self._pod_name(running)
            logger.warning("The node of %s does not say that it has ended; its pod %s is taken away", running.name, pod)
            await self._api.delete(PODS, pod, grace_s=0)
            if not await self._gone_within(running, _GONE_MARGIN_S):
                raise ProviderError(
                    f"The pod {pod} of {running.name} does not go away. Look at it with `kubectl describe pod {pod} "
                    f"--namespace {self._api.namespace}`."
                )
        finally:
            self._running.pop(running.job, None)

    async def _gone_within(self, running: _Running, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while True:
                news = self._watch.news
                pods = self._watch.of(manifests.REPLICA_LABEL, running.job)
                if not pods or is_over(pods[0]):
                    return True
                await news.wait()
        return False

    async def _is_alive(self, replica: Replica) -> bool:
        try:
            state = read_pod(await self._api.read(PODS, replica.id))
        except ApiFault as fault:
            if fault.status == 404:
                return False
            raise
        return state.running and state.ended is None

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        return (await self._api.log(replica.id, manifests.CONTAINER, tail)).rstrip("\n")

    # What the watch tells.

    def _pod_changed(self, pod: Object) -> None:
        running = self._running.get(pod["metadata"].get("labels", {}).get(manifests.REPLICA_LABEL, ""))
        if running is None or running.told:
            return
        state = read_pod(pod)
        if state.ended is not None and running.pod:
            running.told = True
            self._tasks.start_soon(self._tell, running, state, state.ended)

    def _pod_gone(self, pod: Object) -> None:
        running = self._running.get(pod["metadata"].get("labels", {}).get(manifests.REPLICA_LABEL, ""))
        if running is not None and not running.told and running.pod:
            running.told = True
            last = read_pod(pod).ended
            self._note_exit(
                running.name,
                None if last is None else last.exit_code,
                "" if last is None else last.last_words,
                "its pod is gone: somebody has deleted it, or its node is gone",
            )

    async def _tell(self, running: _Running, state: PodState, ended: Ended) -> None:
        tail = ended.last_words
        with anyio.move_on_after(_LOG_S):
            tail = await self._diagnosis.tail(state, ended)
            reason = ended.reason or await self._diagnosis.killed_by_node(state, ended.exit_code)
            self._note_exit(running.name, ended.exit_code, tail, reason)
            return
        self._note_exit(running.name, ended.exit_code, tail, ended.reason)

    def _state_of(self, running: _Running) -> PodState | None:
        pods = self._watch.of(manifests.REPLICA_LABEL, running.job)
        return read_pod(pods[0]) if pods else None

    def _pod_name(self, running: _Running) -> str:
        pods = self._watch.of(manifests.REPLICA_LABEL, running.job)
        return pods[0]["metadata"]["name"] if pods else ""

    def _by_name(self, name: str) -> _Running | None:
        return next((each for each in self._running.values() if each.name == name), None)
