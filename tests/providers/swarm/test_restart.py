"""A rolling restart: the new server is ready before the old one goes, and a bad one takes nothing down."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers.base import ReplicaExit
from openenv_trl.providers.swarm import DockerSwarmProvider
from tests.providers.swarm.conftest import Swarm, told, until

pytestmark = [pytest.mark.anyio, pytest.mark.docker, pytest.mark.timeout(600)]

Make = Callable[..., DockerSwarmProvider]


def words(base_url: str) -> list[str]:
    with urllib.request.urlopen(f"{base_url}/health", timeout=60) as reply:
        return json.load(reply)["arguments"]


async def test_new_servers_are_ready_before_old_ones_go_and_none_is_called_dead(swarm: Swarm, provider: Make) -> None:
    exits: list[ReplicaExit] = []
    fewest = 2
    servers = provider(replicas=2, update_parallelism=2, on_exit=exits.append)
    async with servers, anyio.create_task_group() as group:

        async def count() -> None:
            nonlocal fewest
            while True:
                fewest = min(fewest, len(servers.replicas))
                await anyio.sleep(0.01)

        group.start_soon(count)
        before = servers.base_urls
        endpoint = await servers.restart(servers.spec.model_copy(update={"command": told("fresh")}))
        assert fewest == 2
        assert not set(before) & set(endpoint.base_urls)
        assert [words(base_url) for base_url in endpoint.base_urls] == [["fresh"], ["fresh"]]
        assert exits == []
        assert len(swarm.services()) == 2
        group.cancel_scope.cancel()


async def test_a_restart_that_fails_leaves_what_runs(swarm: Swarm, provider: Make) -> None:
    servers = provider(replicas=2)
    async with servers:
        before = servers.replicas
        with pytest.raises(ServerStartError, match="cannot find the cards"):
            await servers.restart(servers.spec.model_copy(update={"command": told("crash")}))
        assert servers.replicas == before
        assert [words(base_url) for base_url in servers.base_urls] == [["plain"], ["plain"]]
        assert servers.spec.command is None
        with pytest.raises(ProviderError, match="publish cannot change"):
            await servers.restart(servers.spec.model_copy(update={"publish": "ingress"}))
        assert len(swarm.containers()) == 2


async def test_one_service_of_many_replicas_restarts_by_itself_and_still_loses_exactly_the_named_one(
    swarm: Swarm, provider: Make
) -> None:
    exits: list[ReplicaExit] = []
    servers = provider(replicas=3, one_service=True, update_parallelism=3, stop_grace_s=1, on_exit=exits.append)
    async with servers:
        services = swarm.services()
        assert [each["Spec"]["Mode"]["Replicated"]["Replicas"] for each in services] == [3]
        assert len(set(servers.base_urls)) == 3
        first = servers.replicas[0]
        await servers.remove_replica(first)
        assert [words(base_url) for base_url in servers.base_urls] == [["plain"], ["plain"]]
        names = [replica.name for replica in servers.replicas]
        endpoint = await servers.restart(servers.spec.model_copy(update={"command": told("fresh")}))
        assert [replica.name for replica in endpoint.replicas] == names
        assert [words(base_url) for base_url in endpoint.base_urls] == [["fresh"], ["fresh"]]
        # What Swarm has put in the place of the removed one ends too.
        await until(lambda: sum(each["State"]["Running"] for each in swarm.containers()) == 2)
        added = await servers.add_replica()
        assert words(added.base_url) == ["fresh"]
        assert len(swarm.services()) == 2
        assert exits == []
    assert await anyio.to_thread.run_sync(swarm.is_empty)


async def test_a_bad_update_of_one_service_is_rolled_back_and_its_replicas_found_again(provider: Make) -> None:
    exits: list[ReplicaExit] = []
    servers = provider(replicas=2, one_service=True, stop_grace_s=1, on_exit=exits.append)
    async with servers:
        with pytest.raises(ServerStartError, match="cannot find the cards"):
            await servers.restart(servers.spec.model_copy(update={"command": told("crash")}))
        assert [words(base_url) for base_url in servers.base_urls] == [["plain"], ["plain"]]
        impossible: dict[str, Any] = {"constraints": ["node.role==worker"], "schedule_timeout_s": 1}
        with pytest.raises(ServerStartError, match="no suitable node"):
            await servers.restart(servers.spec.model_copy(update=impossible))
        assert [words(base_url) for base_url in servers.base_urls] == [["plain"], ["plain"]]
        assert await servers.alive()
        assert exits == []
