"""What owners have in a namespace of a cluster, for ``openenv-trl ps``, ``prune`` and the reaper of a dead owner.

Jobs are all there is to remove: pods, Services and NetworkPolicies are owned by them, and go with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.kubernetes.api import JOBS, ClusterApi, Object
from openenv_trl.providers.kubernetes.credentials import find_cluster
from openenv_trl.providers.kubernetes.manifests import NAME_ANNOTATION
from openenv_trl.providers.kubernetes.spec import KubernetesSpec
from openenv_trl.providers.owner import LEASE_LABEL, OWNER_LABEL, Owner
from openenv_trl.providers.ownership.things import Inventory, Thing


class KubernetesInventory(Inventory):
    """One namespace of one cluster.

    Args:
        namespace: Which; the context's own if None.
        kubeconfig: The file with the cluster's address and credentials; found as the provider does if None.
        context: Which of its contexts; its current one if None.
        in_cluster: As `KubernetesSpec.in_cluster`.
    """

    def __init__(
        self,
        namespace: str | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        in_cluster: bool | None = None,
    ) -> None:
        path = None if kubeconfig is None else Path(kubeconfig)
        # Only where the cluster is is read of it.
        self._spec = KubernetesSpec(
            image="-", namespace=namespace, kubeconfig=path, context=context, in_cluster=in_cluster
        )
        self._api: ClusterApi | None = None

    @property
    def name(self) -> str:
        """The cluster's address, and the namespace."""
        if self._api is None:
            return "Kubernetes"
        return f"Kubernetes at {self._api.address}, namespace {self._api.namespace}"

    async def __aenter__(self) -> KubernetesInventory:
        self._api = (await find_cluster(self._spec)).api
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._cluster.close()

    @property
    def _cluster(self) -> ClusterApi:
        assert self._api is not None, "open it first"
        return self._api

    async def list(self, owner_id: str | None = None) -> list[Thing]:
        """Return the namespace's Jobs that are some owner's."""
        labels = OWNER_LABEL if owner_id is None else f"{OWNER_LABEL}={owner_id}"
        listed = await self._cluster.list(JOBS, labels=labels)
        found = [_thing(each) for each in listed["items"] if not each["metadata"].get("deletionTimestamp")]
        return [each for each in found if each is not None]

    async def remove(self, things: Sequence[Thing]) -> list[str]:
        """Delete Jobs; what they own the cluster deletes."""
        failures: list[str] = []

        async def delete(thing: Thing) -> None:
            try:
                await self._cluster.delete(JOBS, thing.id)
            except ProviderError as error:
                failures.append(str(error))

        async with anyio.create_task_group() as tasks:
            for thing in things:
                tasks.start_soon(delete, thing)
        return failures


def _thing(job: Object) -> Thing | None:
    metadata: Object = job["metadata"]
    status: Object = job.get("status") or {}
    labels: dict[str, str] = metadata.get("labels") or {}
    annotations: dict[str, str] = metadata.get("annotations") or {}
    conditions: list[dict[str, str]] = status.get("conditions") or []
    owner = Owner.from_labels(labels)
    if owner is None:
        return None
    lease_s = None
    with suppress(KeyError, ValueError):
        lease_s = float(labels[LEASE_LABEL])
    name = annotations.get(NAME_ANNOTATION) or metadata["name"]
    state = "running" if status.get("active") else "pending"
    for each in conditions:
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            state = each["type"].lower()
    return Thing("job", metadata["name"], name, owner, state, _seconds(metadata.get("creationTimestamp")), lease_s)


def _seconds(when: Any) -> float | None:
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(str(when).replace("Z", "+00:00")).timestamp()
    return None
