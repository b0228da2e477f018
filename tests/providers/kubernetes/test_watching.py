"""What the provider knows of its pods stays right, whatever happens to the connection; and what it says of an end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.providers.kubernetes import KubernetesProvider
from openenv_trl.providers.kubernetes.pod_state import read_pod
from openenv_trl.providers.kubernetes.watching import Seen
from tests.providers.kubernetes.cluster.running import Cluster
from tests.providers.kubernetes.cluster.store import Store

Make = Callable[..., KubernetesProvider]
on_cluster = pytest.mark.docker


async def end_server(url: str, code: int) -> None:
    with pytest.raises(httpx.HTTPError):
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(f"{url}/exit/{code}", timeout=30)


@on_cluster
@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["connection", "history", "server"])
async def test_a_death_is_noticed_although_the_watch_was_interrupted(
    cluster: Cluster, provider: Make, fault: str
) -> None:
    servers = provider(replicas=2)
    await servers.start()
    first = servers.replicas[0]
    if fault == "server":
        await anyio.to_thread.run_sync(cluster.stop_serving)
    await end_server(first.base_url, 4)
    if fault == "history":
        cluster.do(cluster.store.compact)
    if fault == "server":
        await anyio.to_thread.run_sync(cluster.serve)
    else:
        cluster.do(cluster.api.drop_watches)
    with anyio.fail_after(120):
        gone = await servers.wait_exited()
    assert (gone.replica, gone.exit_code) == (first, 4)
    assert len(servers.replicas) == 1
    await servers.add_replica()


@on_cluster
@pytest.mark.anyio
async def test_one_watch_serves_all_replicas(cluster: Cluster, provider: Make) -> None:
    cluster.api.requests.clear()
    servers = provider(replicas=3)
    await servers.start()
    await servers.stop()
    asked = [each for each in cluster.api.requests if each[1] == "pods" and each[0] != "delete"]
    assert asked == [("list", "pods"), ("watch", "pods")]


@on_cluster
@pytest.mark.anyio
async def test_a_pod_that_somebody_deletes_is_told(cluster: Cluster, provider: Make) -> None:
    servers = provider()
    await servers.start()
    name = servers.replicas[0].id
    cluster.do(lambda: cluster.store.delete("pods", "rollouts", name))
    with anyio.fail_after(120):
        assert "its pod is being deleted" in (await servers.wait_exited()).reason


@on_cluster
@pytest.mark.anyio
async def test_an_eviction_is_told_with_its_cause(cluster: Cluster, provider: Make) -> None:
    servers = provider()
    await servers.start()
    name = servers.replicas[0].id
    cluster.do(lambda: cluster.controllers.evict("rollouts", name, "The node was low on resource: memory."))
    with anyio.fail_after(120):
        gone = await servers.wait_exited()
    assert gone.reason == "it was evicted (Evicted: The node was low on resource: memory.)"


@on_cluster
@pytest.mark.anyio
async def test_a_lost_node_is_given_up_and_its_pods_are_taken_away(
    cluster: Cluster, provider: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv_trl.providers.kubernetes.provider._GONE_MARGIN_S", 1)
    servers = provider()
    await servers.start()
    cluster.kubelet.answers = False
    cluster.do(lambda: cluster.controllers.lose_node("rollouts"))
    with anyio.fail_after(120):
        gone = await servers.wait_exited()
    assert "its node does not answer" in gone.reason
    await servers.stop()
    assert cluster.all("pods") == []
    assert cluster.all("jobs") == []


@on_cluster
@pytest.mark.parametrize("state", ["running", "pending"])
def test_a_killed_owner_leaves_nothing_for_long_without_anybodys_help(cluster: Cluster, image: str, state: str) -> None:
    """The lease ends a server that runs, and the Job's deadline one that never came to run; then the cluster clears."""
    fields: dict[str, Any] = {"node_selector": {"pool": "none"}} if state == "pending" else {}
    program = (
        "import sys, json, time\n"
        "from openenv_trl.providers.kubernetes import KubernetesProvider\n"
        "class Alone(KubernetesProvider):\n"
        "    def _place(self): return None\n"  # no reaper: what the cluster does by itself is looked at
        "provider = Alone(**json.loads(sys.argv[1]))\n"
        "provider.start_sync()\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    import json

    known = {"image": image, "kubeconfig": str(cluster.kubeconfig()), "access": "pod-ip", "network": "internal"}
    # A server that runs has the time to: else its owner is told that it does not before it can be killed.
    lives = {"lease_s": 10, "pending_timeout_s": 120} if state == "running" else {"lease_s": 2, "pending_timeout_s": 4}
    times = {**lives, "ttl_after_finished_s": 1, "replicas": 2}
    command = [sys.executable, "-c", program, json.dumps({**known, **times, **fields})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        if state == "running":
            assert owner.stdout.readline() == "up\n"
            assert len(cluster.containers()) == 2
        else:
            while len(cluster.all("pods")) < 2:
                assert owner.poll() is None
        owner.send_signal(signal.SIGKILL)
    assert len(cluster.all("jobs")) == 2
    cluster.wait_empty(120)


def job_pod(version: int, uid: str = "u", name: str = "p") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "delete", "lost"])), max_size=40))
def test_what_is_seen_is_what_there_is(steps: list[tuple[str, str]]) -> None:
    """However lists and events alternate, also where events were lost, each object that went is told once."""
    store, seen = Store(), Seen()
    told: set[str] = set()

    def take(changed: list[Any], gone: list[Any]) -> None:
        for each in gone:
            told.remove(each["metadata"]["uid"])
        told.update(each["metadata"]["uid"] for each in changed)

    def listed() -> dict[str, Any]:
        return {"metadata": {"resourceVersion": store.version}, "items": store.all("pods")}

    take(*seen.take_list(listed()))
    for name, action in steps:
        if action == "put":
            if store.change("pods", "n", name, lambda pod: pod.update(turn=pod.get("turn", 0) + 1)) is None:
                store.create("pods", "n", {"metadata": {"name": name}, "spec": {}})
        elif action == "delete" and store.find("pods", "n", name):
            store.delete("pods", "n", name)
        elif action == "lost":
            store.compact()
            seen.too_old()
            take(*seen.take_list(listed()))
        for each in store.since(int(seen.version), "pods", "n", ""):
            take(*seen.take_event({"type": each.kind, "object": each.object}))
        assert told == {each["metadata"]["uid"] for each in store.all("pods")}
        assert set(seen.objects) == {each["metadata"]["name"] for each in store.all("pods")}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "it was evicted (Evicted: low on disk)"),
        ({"phase": "Failed", "reason": "NodeShutdown", "message": "x"}, "the cluster ended it (NodeShutdown: x)"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "it reached its max_lifetime_s (DeadlineExceeded)"),
        ({"phase": "Failed"}, "its pod has the phase Failed"),
    ],
)
def test_an_end_is_put_in_words(status: dict[str, Any], reason: str) -> None:
    ended = read_pod({"metadata": {"name": "p"}, "status": status}).ended
    assert ended is not None
    assert ended.reason == reason


def test_a_container_that_cannot_be_run_is_told_with_the_runtimes_words() -> None:
    terminated = {"exitCode": 128, "reason": "StartError", "message": 'exec: "nope": not found'}
    status = {"phase": "Failed", "containerStatuses": [{"name": "server", "state": {"terminated": terminated}}]}
    ended = read_pod({"metadata": {"name": "p"}, "status": status}).ended
    assert ended is not None
    assert ended.reason == 'exit code 128: StartError exec: "nope": not found'
