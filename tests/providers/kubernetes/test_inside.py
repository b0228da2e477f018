"""An owner that runs in a pod of the cluster itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import httpx
import pytest

from openenv_trl.providers.kubernetes import KubernetesProvider
from openenv_trl.providers.kubernetes.inventory import KubernetesInventory
from openenv_trl.providers.owner import this_owner
from tests.providers.kubernetes.cluster.running import Cluster

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


@pytest.fixture
def inside(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, with what Kubernetes gives to a pod called trainer-0."""
    (tmp_path / "token").write_text("secret-token")
    (tmp_path / "ca.crt").write_bytes(cluster.certificate.read_bytes())
    (tmp_path / "namespace").write_text("rollouts")
    monkeypatch.setattr("openenv_trl.providers.kubernetes.credentials.ACCOUNT_FOLDER", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOSTNAME", "trainer-0")
    return cluster


async def test_its_servers_are_reached_by_pod_ip_and_go_with_its_pod(inside: Cluster, image: str) -> None:
    own = {"metadata": {"name": "trainer-0"}, "spec": {"nodeName": "another"}, "status": {"phase": "Running"}}
    inside.do(lambda: inside.store.create("pods", "rollouts", own))
    servers = KubernetesProvider(image=image, replicas=2)
    try:
        endpoint = await servers.start()
        async with httpx.AsyncClient(trust_env=False) as client:
            seen = {(await client.get(f"{url}/facts")).json()["host"] for url in endpoint.base_urls}
        assert seen == {replica.id for replica in servers.replicas}
        inside.do(lambda: inside.store.delete("pods", "rollouts", "trainer-0", grace_s=0))
        with anyio.fail_after(120):
            for _ in range(2):
                assert "is being deleted" in (await servers.wait_exited()).reason
    finally:
        await servers.stop()


async def test_what_owners_have_is_listed_and_removed(
    cluster: Cluster, provider: Callable[..., KubernetesProvider], kubeconfig: Path
) -> None:
    servers = provider(replicas=2, lease_s=90)
    await servers.start()
    async with KubernetesInventory(kubeconfig=str(kubeconfig)) as inventory:
        assert inventory.name == f"Kubernetes at https://127.0.0.1:{cluster.port}, namespace rollouts"
        things = await inventory.list(this_owner().id)
        assert {each.name for each in things} == {replica.name for replica in servers.replicas}
        assert {(each.kind, each.state, each.lease_s) for each in things} == {("job", "running", 90.0)}
        assert all(each.owner == this_owner() for each in things)
        assert await inventory.list("another") == []
        assert await inventory.remove(things) == []
        assert await inventory.remove(things) == []
    cluster.wait_empty()
