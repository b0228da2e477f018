"""The node of the test cluster: every pod's container is really run, by the machine's Docker engine.

Image, arguments, environment, user, capabilities, read-only root, memory-backed /tmp, memory and CPU limits of the
manifest are the container's; its IP is the pod's, and can be reached from this machine. Probes are really made, over
HTTP; exit codes, signals and ends for lack of memory are the kernel's own.

Not done: one container a pod and no init containers; no image is pulled (one that the engine does not have is one that
the registry does not have); NetworkPolicies are written down and not enforced; ephemeral storage is not limited.
"""

from __future__ import annotations

import contextlib
from typing import Any

import aiodocker
import anyio
from anyio.abc import TaskGroup

from tests.providers.kubernetes.cluster.store import Object, Refused, Store, now

LABEL = "openenv-trl-test-cluster"
"""The label of all containers of a cluster, with the cluster's id."""
NODE = "node-1"
_SECONDS_OF_A_PROBE_WITHOUT = 10


class Kubelet:
    """Runs the pods that the scheduler gave to the node.

    Args:
        store: The objects.
        cluster: The cluster's id.
        warn: Writes an event: namespace, kind, name, reason, message.
    """

    def __init__(self, store: Store, cluster: str, warn: Any) -> None:
        self._store = store
        self._cluster = cluster
        self._warn = warn
        self._known: set[str] = set()
        self.containers: dict[str, Any] = {}
        """The container of each pod, by the pod's name."""
        self.answers = True
        """Whether the node says anything to the control plane."""

    async def run(self) -> None:
        async with aiodocker.Docker() as self._docker, anyio.create_task_group() as pods:
            try:
                while True:
                    changed = self._store.changed
                    for pod in self._store.all("pods") if self.answers else ():
                        if pod["spec"].get("nodeName") == NODE and pod["metadata"]["uid"] not in self._known:
                            self._known.add(pod["metadata"]["uid"])
                            pods.start_soon(self._run_pod, pod)
                    await changed.wait()
            finally:
                pods.cancel_scope.cancel()

    async def _run_pod(self, pod: Object) -> None:
        metadata = pod["metadata"]
        key = (metadata["namespace"], metadata["name"])
        try:
            async with anyio.create_task_group() as both:
                both.start_soon(self._until_deleted, key, metadata["uid"], both)
                # A pod that is taken away by force takes the ground from under what is done for it.
                with contextlib.suppress(aiodocker.DockerError, Refused):
                    container = await self._start(pod, key)
                    if container is not None:
                        await self._look_after(pod, key, container)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(pod, key)

    async def _until_deleted(self, key: tuple[str, str], uid: str, both: TaskGroup) -> None:
        while True:
            changed = self._store.changed
            pod = self._store.find("pods", *key)
            if (
                pod is None
                or pod["metadata"]["uid"] != uid
                or (pod["metadata"].get("deletionTimestamp") and self.answers)
            ):
                both.cancel_scope.cancel()
                return
            await changed.wait()

    async def _start(self, pod: Object, key: tuple[str, str]) -> Any:
        spec = pod["spec"]["containers"][0]
        image, policy = spec["image"], spec.get("imagePullPolicy", "IfNotPresent")
        try:
            found = await self._docker.images.inspect(image)
        except aiodocker.DockerError:
            if policy == "Never":
                told = f'Container image "{image}" is not present with pull policy of Never'
                self._waiting(key, "ErrImageNeverPull", told)
            else:
                told = f'failed to pull and unpack image "{image}": failed to resolve reference: {image}: not found'
                self._waiting(key, "ErrImagePull", told)
            return None
        security = {**(pod["spec"].get("securityContext") or {}), **(spec.get("securityContext") or {})}
        user = str(security.get("runAsUser", found["Config"].get("User") or "0"))
        if security.get("runAsNonRoot") and user.partition(":")[0] in ("0", "root", ""):
            told = f"container has runAsNonRoot and image will run as root (pod: {key[1]}, container: {spec['name']})"
            self._waiting(key, "CreateContainerConfigError", told)
            return None
        self._waiting(key, "ContainerCreating", "")
        # What the engine was asked for it makes, also where nobody waits for it any more.
        with anyio.CancelScope(shield=True):
            container = await self._docker.containers.create(_container(self._cluster, pod, spec, security, user))
            self.containers[key[1]] = container
        try:
            await container.start()
        except aiodocker.DockerError as error:
            self._over(key, {"exitCode": 128, "reason": "StartError", "message": error.message}, "Failed")
            return None
        shown = await container.show()
        network = shown["NetworkSettings"]
        ip = network["IPAddress"] or next(iter(network["Networks"].values()))["IPAddress"]

        def running(given: Object) -> None:
            status = given["status"]
            status |= {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": now()}
            state = {"running": {"startedAt": now()}}
            status["containerStatuses"] = [{"name": spec["name"], "ready": False, "restartCount": 0, "state": state}]

        self._change(key, running)
        return container

    async def _look_after(self, pod: Object, key: tuple[str, str], container: Any) -> None:
        """Probes a container until it has ended, and says how."""
        spec = pod["spec"]["containers"][0]
        async with anyio.create_task_group() as probes:
            probes.start_soon(self._probe_all, spec, key, container)
            outcome = await container.wait()
            probes.cancel_scope.cancel()
        shown = (await container.show())["State"]
        code = outcome["StatusCode"]
        log = "" if not code else "".join(await container.log(stdout=True, stderr=True, tail=80))
        reason = "OOMKilled" if shown["OOMKilled"] else ("Completed" if not code else "Error")
        terminated = {"exitCode": code, "reason": reason, "message": log[-2048:], "finishedAt": now()}
        self._over(key, terminated, "Failed" if code else "Succeeded")

    async def _probe_all(self, spec: Object, key: tuple[str, str], container: Any) -> None:
        pod = self._store.get("pods", *key)
        ip = pod["status"]["podIP"]
        if await self._probe("Startup", spec.get("startupProbe"), spec, ip, key, until=True):
            await self._kill(pod, container)
            return
        async with anyio.create_task_group() as both:
            both.start_soon(self._ready, spec, ip, key)
            if await self._probe("Liveness", spec.get("livenessProbe"), spec, ip, key, until=False):
                await self._kill(pod, container)

    async def _kill(self, pod: Object, container: Any) -> None:
        metadata, name = pod["metadata"], pod["spec"]["containers"][0]["name"]
        self._warn(metadata["namespace"], "Pod", metadata["name"], "Killing", f"Stopping container {name}")
        await container.stop(t=pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def _ready(self, spec: Object, ip: str, key: tuple[str, str]) -> None:
        probe = spec["readinessProbe"]
        while True:
            answered = not await _ask(probe, spec, ip)

            def edit(given: Object, answered: bool = answered) -> None:
                others = [each for each in given["status"].get("conditions") or [] if each["type"] != "Ready"]
                ready = {"type": "Ready", "status": "True" if answered else "False"}
                given["status"]["conditions"] = [*others, ready]
                for each in given["status"].get("containerStatuses") or []:
                    each["ready"] = answered

            self._change(key, edit)
            await anyio.sleep(probe["periodSeconds"])

    async def _probe(self, kind: str, probe: Object | None, spec: Object, ip: str, key: Any, *, until: bool) -> bool:
        """Probes until it has failed too often (True) or, with `until`, was answered once (False)."""
        failures = 0
        while probe is not None:
            told = await _ask(probe, spec, ip)
            if not told and until:
                return False
            failures = failures + 1 if told else 0
            if failures >= probe.get("failureThreshold", 3):
                self._warn(*(key[0], "Pod", key[1]), "Unhealthy", f"{kind} probe failed: {told}")
                return True
            await anyio.sleep(probe.get("periodSeconds", _SECONDS_OF_A_PROBE_WITHOUT))
        if not until:
            await anyio.sleep_forever()
        return False

    async def _end(self, pod: Object, key: tuple[str, str]) -> None:
        container = self.containers.get(key[1])
        if container is not None:
            current = self._store.find("pods", *key)
            grace_s = 0 if current is None else current["metadata"].get("deletionGracePeriodSeconds", 0)
            with contextlib.suppress(aiodocker.DockerError):
                await container.stop(t=grace_s)
            with contextlib.suppress(aiodocker.DockerError):
                await container.delete(force=True, v=True)
            self.containers.pop(key[1], None)
        current = self._store.find("pods", *key)
        same = current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"]
        if same and current["metadata"].get("deletionTimestamp"):
            self._store.delete("pods", *key, grace_s=0)

    def _waiting(self, key: tuple[str, str], reason: str, message: str) -> None:
        def edit(given: Object) -> None:
            state = {"waiting": {"reason": reason, "message": message}}
            name = given["spec"]["containers"][0]["name"]
            given["status"]["containerStatuses"] = [{"name": name, "ready": False, "restartCount": 0, "state": state}]

        self._change(key, edit)

    def _over(self, key: tuple[str, str], terminated: Object, phase: str) -> None:
        def edit(given: Object) -> None:
            name = given["spec"]["containers"][0]["name"]
            state = {"terminated": terminated}
            given["status"] |= {"phase": phase}
            given["status"]["containerStatuses"] = [{"name": name, "ready": False, "restartCount": 0, "state": state}]

        self._change(key, edit)

    def _change(self, key: tuple[str, str], edit: Any) -> None:
        if self.answers:
            self._store.change("pods", *key, edit)


def _container(cluster: str, pod: Object, spec: Object, security: Object, user: str) -> Object:
    """The container of a pod, in the words of Docker's API."""
    group = security.get("runAsGroup")
    limits = (spec.get("resources") or {}).get("limits") or {}
    options = [] if security.get("allowPrivilegeEscalation", True) else ["no-new-privileges"]
    host: Object = {
        "ReadonlyRootfs": bool(security.get("readOnlyRootFilesystem")),
        "CapDrop": (security.get("capabilities") or {}).get("drop") or [],
        "SecurityOpt": options,
        "Tmpfs": {},
    }
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or []}
    for mount in spec.get("volumeMounts") or []:
        size = volumes[mount["name"]]["emptyDir"]["sizeLimit"]
        host["Tmpfs"][mount["mountPath"]] = f"size={size},mode=1777"
    if "memory" in limits:
        host["Memory"] = int(limits["memory"])
    if "cpu" in limits:
        host["NanoCpus"] = int(limits["cpu"].removesuffix("m")) * 1_000_000
    config: Object = {
        "Image": spec["image"],
        "Hostname": pod["metadata"]["name"][:63],
        "User": user if group is None else f"{user}:{group}",
        # Two dollars before a parenthesis stand for one, as nothing is put in place of a variable's name.
        "Env": [f"{each['name']}={each['value'].replace('$$(', '$(')}" for each in spec.get("env") or []],
        "Labels": {LABEL: cluster},
        "HostConfig": host,
    }
    if "args" in spec:
        config["Cmd"] = [word.replace("$$(", "$(") for word in spec["args"]]
    return config


async def _ask(probe: Object, spec: Object, ip: str) -> str:
    """One HTTP probe; empty where it was answered well."""
    get = probe["httpGet"]
    port = next(each["containerPort"] for each in spec["ports"] if each["name"] == get["port"])
    reply = b""
    with anyio.move_on_after(probe.get("timeoutSeconds", 1)):
        try:
            async with await anyio.connect_tcp(ip, port) as stream:
                await stream.send(f"GET {get['path']} HTTP/1.1\r\nHost: {ip}\r\nConnection: close\r\n\r\n".encode())
                reply = await stream.receive()
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            return f"Get http://{ip}:{port}{get['path']}: {error}"
    if not reply:
        return f"Get http://{ip}:{port}{get['path']}: context deadline exceeded"
    status = int(reply.split(b" ", 2)[1])
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"
