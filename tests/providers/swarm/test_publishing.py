"""Servers that are reached over a network of the Swarm, or behind its mesh."""

from __future__ import annotations

from collections.abc import Callable

import anyio.to_thread
import pytest

from openenv_trl.providers.base import Replica
from openenv_trl.providers.swarm import DockerSwarmProvider
from tests.providers.swarm.conftest import Swarm

pytestmark = [pytest.mark.anyio, pytest.mark.docker, pytest.mark.timeout(600)]


class SeenFromWithin(DockerSwarmProvider):
    """A provider whose owner stands where these tests do not."""

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        return ""


async def test_servers_in_a_network_are_reached_by_who_is_in_it(
    swarm: Swarm, provider: Callable[..., DockerSwarmProvider]
) -> None:
    swarm.docker("network", "create", "--driver", "overlay", "--attachable", "--internal", "table")
    try:
        servers = provider(SeenFromWithin, replicas=2, publish="network", overlay_network="table", network="internal")
        async with servers:
            assert len(set(servers.base_urls)) == 2
            look = (
                "import sys, urllib.request as r; [r.urlopen(u + '/health', timeout=60).read() for u in sys.argv[1:]]"
            )
            entry = ["--entrypoint", "python", swarm.image, "-c", look]
            run = ["run", "--rm", "--network", "table", *entry, *servers.base_urls]
            await anyio.to_thread.run_sync(lambda: swarm.docker(*run))
    finally:
        swarm.remove_network("table")


async def test_behind_the_mesh_there_is_one_replica_of_many_tasks(
    swarm: Swarm, provider: Callable[..., DockerSwarmProvider]
) -> None:
    # The mesh itself needs a module of the kernel (ip_vs); whether connections come through is not asked here.
    servers = provider(SeenFromWithin, replicas=3, publish="ingress")
    async with servers:
        (service,) = swarm.services()
        assert service["Spec"]["Mode"]["Replicated"]["Replicas"] == 3
        assert servers.base_urls == [f"http://127.0.0.1:{service['Endpoint']['Ports'][0]['PublishedPort']}"]
        # The mesh would bring renewals to one task at a time, and the others would end.
        environments = [each["Config"]["Env"] for each in swarm.containers()]
        assert len(environments) == 3
        assert not any(line.startswith("OPENENV_TRL_LEASE") for lines in environments for line in lines)
        victim = swarm.containers()[0]["Id"]
        await anyio.to_thread.run_sync(lambda: swarm.docker("kill", victim))
        assert await servers.alive()
        for each in swarm.containers():
            if each["Id"] != victim:
                await anyio.to_thread.run_sync(swarm.docker, "kill", each["Id"])
        assert (await servers.wait_exited()).exit_code == 137
