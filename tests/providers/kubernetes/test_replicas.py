"""Replicas on a cluster: started side by side, confined as the spec says, added, removed, and noticed when they die."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from openenv_trl.providers.kubernetes import KubernetesProvider
from tests.providers.kubernetes.cluster.running import Cluster

pytestmark = [pytest.mark.docker, pytest.mark.anyio]
Make = Callable[..., KubernetesProvider]


async def facts(url: str) -> Any:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{url}/facts", timeout=30)).json()


async def break_off(url: str) -> None:
    """Asks for what ends the server."""
    with pytest.raises(httpx.HTTPError):
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(url, timeout=60)


async def test_replicas_start_together_and_each_answers_at_its_own_pod(provider: Make) -> None:
    servers = provider(replicas=3)
    endpoint = await servers.start()
    names = {(await facts(url))["host"] for url in endpoint.base_urls}
    assert names == {replica.id for replica in servers.replicas}
    assert await servers.alive()
    assert len(names) == 3


async def test_a_server_is_confined_as_the_spec_says(provider: Make) -> None:
    servers = provider(
        env_vars={"GREETING": "hello $(HOME) $HOME", "MAX_CONCURRENT_ENVS": 64}, command=["--say", "x $(PATH)"]
    )
    seen = await facts((await servers.start()).base_url)
    assert (seen["uid"], seen["gid"]) == (1000, 1000)
    assert seen["capabilities"] == 0
    assert seen["no_new_privileges"]
    assert seen["seccomp"] == "2"
    assert not seen["root_writable"]
    assert seen["tmp_writable"]
    assert not seen["token_mounted"]
    assert seen["variables"]["GREETING"] == "hello $(HOME) $HOME"
    assert seen["variables"]["MAX_CONCURRENT_ENVS"] == "64"
    assert seen["arguments"] == ["--say", "x $(PATH)"]


async def test_limits_of_the_spec_are_the_containers(cluster: Cluster, provider: Make) -> None:
    servers = provider(memory="100m", cpus=0.5, tmpfs="10m")
    await servers.start()
    host = cluster.container_of(servers.replicas[0].id)["HostConfig"]
    assert host["Memory"] == 100 * 1024**2
    assert host["NanoCpus"] == 500_000_000
    assert host["Tmpfs"] == {"/tmp": f"size={10 * 1024**2},mode=1777"}


async def test_replicas_are_added_and_removed_one_by_one(provider: Make) -> None:
    servers = provider()
    await servers.start()
    first = servers.replicas[0]
    async with anyio.create_task_group() as adding:
        for _ in range(3):
            adding.start_soon(servers.add_replica)
    assert len(servers.replicas) == 4
    await servers.remove_replica(first)
    assert first not in servers.replicas
    assert not await servers.alive(first)
    for replica in servers.replicas:
        assert (await facts(replica.base_url))["host"] == replica.id


async def test_a_death_is_told_with_its_exit_code_and_last_lines(provider: Make) -> None:
    told: list[str] = []
    servers = provider(on_exit=lambda gone: told.append(gone.replica.name))
    await servers.start()
    replica = servers.replicas[0]
    await break_off(f"{replica.base_url}/exit/3")
    with anyio.fail_after(120):
        gone = await servers.wait_exited()
    assert gone.exit_code == 3
    assert gone.replica == replica
    assert "told to end" in gone.log_tail
    assert servers.replicas == []
    assert not await servers.alive(replica)
    await servers.stop()
    assert told == [replica.name]


async def test_out_of_memory_says_so_and_names_the_limit(provider: Make) -> None:
    servers = provider(memory="60m", tmpfs="1m")
    await servers.start()
    await break_off(f"{servers.replicas[0].base_url}/eat")
    with anyio.fail_after(120):
        gone = await servers.wait_exited()
    assert gone.reason == "out of memory: it needed more than its limit of 60 MiB; raise memory"
    assert "eating memory" in gone.log_tail


async def test_a_server_that_hangs_is_killed_by_its_node_and_says_so(provider: Make) -> None:
    # Through the API server it is ready only when its node's first check was answered.
    servers = provider(access="port-forward", liveness_period_s=1, liveness_failures=3, probe_timeout_s=3)
    await servers.start()
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(f"{servers.replicas[0].base_url}/hang", timeout=30)
    with anyio.fail_after(120):
        gone = await servers.wait_exited()
    # It is asked to end first, and does.
    assert gone.exit_code == 0
    assert "its node has killed it (exit code 0): Liveness probe failed" in gone.reason


async def test_lines_are_passed_on_as_they_are_written(provider: Make) -> None:
    lines: list[tuple[str, str]] = []
    came = threading.Event()

    def take(name: str, line: str) -> None:
        lines.append((name, line))
        came.set()

    servers = provider(command=["--say", "good morning"], on_log=take)
    await servers.start()
    assert await anyio.to_thread.run_sync(came.wait, 60)
    assert lines[0] == (servers.replicas[0].name, "good morning")
    assert "good morning" in await servers.logs()


async def test_a_laptop_reaches_pods_through_the_api_server(provider: Make) -> None:
    servers = provider(access="port-forward", replicas=2)
    endpoint = await servers.start()
    assert all(url.startswith("http://127.0.0.1:") for url in endpoint.base_urls)
    data = os.urandom(3_000_000)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:

        async def echo(url: str) -> None:
            assert (await client.post(f"{url}/echo", content=data)).content == data

        async with anyio.create_task_group() as both:
            for url in endpoint.base_urls * 2:
                both.start_soon(echo, url)
    await break_off(f"{endpoint.base_url}/exit/5")
    with anyio.fail_after(120):
        assert (await servers.wait_exited()).exit_code == 5


async def test_what_an_internal_server_has_is_its_own_and_goes_with_its_job(cluster: Cluster, provider: Make) -> None:
    servers = provider(network="internal", access="service", replicas=2, ready_timeout_s=2)
    await anyio.to_thread.run_sync(lambda: servers.start_container())
    jobs = {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.all("jobs")}
    for plural in ("networkpolicies", "services"):
        owners = {each["metadata"]["name"]: each["metadata"]["ownerReferences"] for each in cluster.all(plural)}
        assert {name: [owner["uid"] for owner in each] for name, each in owners.items()} == {
            name: [uid] for name, uid in jobs.items()
        }
    assert {replica.base_url for replica in servers._leased()} == {f"http://{name}.rollouts.svc:8000" for name in jobs}
    await servers.stop()
    cluster.wait_empty()
