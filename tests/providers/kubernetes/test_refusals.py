"""What a cluster refuses, and what keeps a pod from running: each is told with what to change, and leaves nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers.kubernetes import KubernetesProvider
from tests.providers.kubernetes.cluster.running import Cluster
from tests.providers.patience import told_in_time

pytestmark = [pytest.mark.docker, pytest.mark.anyio]
Make = Callable[..., KubernetesProvider]


async def told_by(servers: KubernetesProvider, kind: type[Exception] = ServerStartError) -> str:
    with pytest.raises(kind) as error:
        await servers.start()
    assert servers.replicas == []
    return str(error.value)


async def test_an_image_that_is_nowhere_is_named(cluster: Cluster, provider: Make) -> None:
    told = await told_by(provider(image="registry.example/no-such:1"))
    assert "ErrImagePull" in told
    assert "registry.example/no-such:1: not found" in told
    assert "image_pull_secrets" in told
    cluster.wait_empty()


async def test_an_image_that_a_node_may_not_pull_is_named(provider: Make) -> None:
    told = await told_by(provider(image="no-such:1", image_pull_policy="Never"))
    assert 'ErrImageNeverPull: Container image "no-such:1" is not present with pull policy of Never' in told


async def test_a_server_that_ends_at_once_shows_its_last_lines(provider: Make) -> None:
    told = await told_by(provider(command=["--crash"]))
    assert "ended before it was ready: exit code 1" in told
    assert "ZeroDivisionError" in told


async def test_a_server_that_never_gets_ready_shows_what_it_wrote(provider: Make) -> None:
    async def start(seconds: float) -> str:
        told = await told_by(provider(command=["--never-ready", "--say", "thinking"], ready_timeout_s=seconds))
        assert f"was not ready within {seconds:g} s" in told
        return told

    told = await told_in_time(start, "503", "thinking")
    assert "503" in told
    assert "thinking" in told


async def test_an_image_of_root_is_refused_where_no_user_is_given(provider: Make) -> None:
    told = await told_by(provider(user=None))
    assert "image will run as root" in told
    assert "Set user to a number other than 0, or to '0'" in told


async def test_root_runs_where_it_is_asked_for(provider: Make) -> None:
    await provider(user="0", read_only=False).start()


async def test_a_pod_without_a_node_tells_what_the_scheduler_says(provider: Make) -> None:
    told = await told_by(provider(node_selector={"pool": "none"}, pending_timeout_s=3))
    assert "had no running container within 3 s: Unschedulable: 0/1 nodes are available" in told
    assert "node_selector" in told


async def test_a_used_up_quota_is_told(cluster: Cluster, provider: Make) -> None:
    cluster.controllers.pod_quota = 1
    told = await told_by(provider(replicas=2))
    assert "exceeded quota: pods" in told
    assert "Ask for fewer replicas" in told
    cluster.wait_empty()


async def test_a_namespace_that_is_missing_is_named(provider: Make) -> None:
    told = await told_by(provider(namespace="nowhere"), ProviderError)
    assert "There is no namespace 'nowhere'" in told
    assert "kubectl create namespace nowhere" in told


async def test_credentials_that_the_cluster_does_not_know_are_told(cluster: Cluster, provider: Make) -> None:
    told = await told_by(provider(kubeconfig=cluster.kubeconfig("stale-token")), ProviderError)
    assert "does not accept your credentials (401" in told


@pytest.mark.parametrize(
    ("verb", "resource"), [("list", "pods"), ("create", "jobs"), ("create", "networkpolicies"), ("patch", "jobs")]
)
async def test_a_missing_right_is_named_with_the_role_that_has_it(
    cluster: Cluster, provider: Make, verb: str, resource: str
) -> None:
    cluster.api.forbidden.add((verb, resource))
    told = await told_by(provider(network="internal"), ProviderError)
    assert f"You may not {verb} {resource} in the namespace 'rollouts' (403" in told
    assert "kind: Role" in told
    cluster.api.forbidden.clear()
    cluster.wait_empty()


async def test_a_cluster_that_does_not_answer_is_named(cluster: Cluster, provider: Make, tmp_path: Path) -> None:
    config = json.loads(cluster.kubeconfig().read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "config").write_text(json.dumps(config))
    told = await told_by(provider(kubeconfig=tmp_path / "config"), ProviderError)
    assert "https://127.0.0.1:1 cannot be reached" in told
    assert "kubectl version" in told


async def test_a_certificate_of_another_cluster_is_told(
    cluster: Cluster, provider: Make, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Cluster(tmp_path_factory.mktemp("other"))
    config = json.loads(other.kubeconfig().read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{cluster.port}"
    (tmp_path / "config").write_text(json.dumps(config))
    told = await told_by(provider(kubeconfig=tmp_path / "config"), ProviderError)
    assert "Its certificate is not that of the kubeconfig's certificate-authority" in told


async def test_a_short_outage_while_replicas_start_is_waited_for(cluster: Cluster, provider: Make) -> None:
    cluster.api.unavailable = 2
    await provider().start()


async def test_new_credentials_are_fetched_when_the_old_ones_end(
    cluster: Cluster, provider: Make, tmp_path: Path
) -> None:
    """As with a cloud's login program, whose tokens last some minutes."""
    token = tmp_path / "token"
    token.write_text("first-token")
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    script = f"""printf '{json.dumps({**said, "status": {"token": "%s"}})}' "$(cat {token})" """
    login = {"apiVersion": said["apiVersion"], "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
    path = cluster.kubeconfig()
    config = json.loads(path.read_text())
    config["users"] = [{"name": "trainer", "user": {"exec": login}}]
    path.write_text(json.dumps(config))
    cluster.api.tokens = {"first-token": "trainer"}
    servers = provider(kubeconfig=path)
    await servers.start()
    cluster.api.tokens = {"second-token": "trainer"}
    token.write_text("second-token")
    await servers.add_replica()
    assert await servers.alive()


def broken(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "fields", "told"),
    [
        ("clusters: [", {}, "cannot be read"),
        ("hello: there", {}, "is no kubeconfig: it has no clusters and contexts"),
        ("{clusters: [], contexts: []}", {}, "has no current context"),
        ("{clusters: [], contexts: [{name: a, context: {}}]}", {"context": "b"}, "Set context to one of: a."),
        (
            "{clusters: [], users: [], contexts: [{name: a, context: {cluster: x, user: y}}], current-context: a}",
            {},
            "The context 'a' of",
        ),
    ],
)
async def test_a_wrong_kubeconfig_is_told(tmp_path: Path, text: str, fields: dict[str, Any], told: str) -> None:
    servers = KubernetesProvider(image="x", kubeconfig=broken(tmp_path / "config", text), **fields)
    assert told in await told_by(servers, ConfigurationError)


async def test_without_a_kubeconfig_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")]))
    told = await told_by(KubernetesProvider(image="x"), ConfigurationError)
    assert f"There is no kubeconfig ({tmp_path / 'a'}, {tmp_path / 'b'})" in told
    assert "KUBECONFIG" in told


async def test_credentials_of_a_pod_are_asked_for_only_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    told = await told_by(KubernetesProvider(image="x", in_cluster=True), ConfigurationError)
    assert "this process has no credentials of a pod" in told


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.client", None)
    told = await told_by(KubernetesProvider(image="x", kubeconfig=tmp_path), ConfigurationError)
    assert "pip install 'openenv-trl[kubernetes]'" in told


async def test_a_start_that_is_cancelled_leaves_nothing(cluster: Cluster, provider: Make) -> None:
    servers = provider(node_selector={"pool": "none"}, replicas=2)
    with anyio.move_on_after(1.5) as waited:
        await servers.start()
    assert waited.cancelled_caught
    cluster.wait_empty()


async def test_a_log_that_cannot_be_read_does_not_hide_why_it_is_wanted(cluster: Cluster, provider: Make) -> None:
    cluster.api.forbidden.add(("get", "pods/log"))
    told = await told_by(provider(command=["--never-ready"], ready_timeout_s=2))
    assert "was not ready within 2 s" in told
    assert "its log cannot be read: You may not get pods/log" in told
