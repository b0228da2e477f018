"""Replicas in a real Swarm of one node: each has an address, exactly the named one goes, deaths are told."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.base import ReplicaExit
from openenv_trl.providers.owner import NAME_LABEL, OWNER_LABEL, this_owner
from openenv_trl.providers.swarm import DockerSwarmProvider
from tests.providers.swarm.conftest import Swarm, told, until

pytestmark = [pytest.mark.anyio, pytest.mark.docker, pytest.mark.timeout(600)]

Make = Callable[..., DockerSwarmProvider]


def ask(base_url: str, path: str = "/health") -> dict[str, Any]:
    with urllib.request.urlopen(f"{base_url}{path}", timeout=60) as reply:
        return json.load(reply)


def tell(base_url: str, path: str) -> None:
    """Asks for something that the server does not survive."""
    with pytest.raises((OSError, http.client.HTTPException)):
        ask(base_url, path)


def test_every_replica_has_an_address_and_limits_and_nothing_is_left(swarm: Swarm, provider: Make) -> None:
    servers = provider(
        replicas=3,
        cpus=0.5,
        memory="96m",
        pids=40,
        read_only=True,
        tmpfs="8m",
        user="1000:1000",
        env_vars={"DECK": "french"},
        labels={"course": "blackjack"},
        command=told("dealt"),
    )
    with servers:
        assert len(set(servers.base_urls)) == 3
        for base_url in servers.base_urls:
            about = ask(base_url)
            assert (about["user"], about["arguments"]) == (1000, ["dealt"])
            assert about["environment"]["DECK"] == "french"
            assert about["environment"]["OPENENV_TRL_LEASE_S"]
        services, containers = swarm.services(), swarm.containers()
        assert [len(services), len(containers)] == [3, 3]
        wanted = {OWNER_LABEL: this_owner().id, "course": "blackjack"}
        for labels in [each["Spec"]["Labels"] for each in services] + [each["Config"]["Labels"] for each in containers]:
            assert wanted.items() <= labels.items()
        host = containers[0]["HostConfig"]
        assert (host["NanoCpus"], host["Memory"], host["PidsLimit"]) == (500_000_000, 96 << 20, 40)
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert [each["TmpfsOptions"]["SizeBytes"] for each in host["Mounts"] if each["Type"] == "tmpfs"] == [8 << 20]
        volumes = swarm.inspect(*swarm.docker("volume", "ls", "--quiet").split())
        assert [each["Labels"][OWNER_LABEL] for each in volumes] == [this_owner().id] * 3
        assert servers.alive_sync()
    assert swarm.is_empty(), swarm.left()


def test_exactly_the_named_replica_goes(swarm: Swarm, provider: Make) -> None:
    servers = provider(replicas=2)
    with servers:
        last = servers.add_replica_sync()
        first, second = servers.replicas[:2]
        parts = urlsplit(second.base_url)
        session = http.client.HTTPConnection(parts.hostname or "", parts.port)
        session.request("GET", "/health")
        session.getresponse().read()
        servers.remove_replica_sync(first)
        servers.remove_replica_sync(first)
        assert servers.replicas == [second, last]
        session.request("GET", "/health")  # on the same connection
        assert session.getresponse().status == 200
        session.close()
        names = [each["Config"]["Labels"][NAME_LABEL] for each in swarm.containers()]
        assert sorted(names) == [second.name, last.name]


async def test_a_death_is_told_with_its_exit_code_and_last_lines_and_swarm_starts_nothing_again(
    swarm: Swarm, provider: Make
) -> None:
    exits: list[ReplicaExit] = []
    servers = provider(replicas=2, on_exit=exits.append)
    async with servers:
        victim, other = servers.replicas
        tell(victim.base_url, "/exit/7")
        gone = await servers.wait_exited()
        assert (gone.replica, gone.exit_code, gone.restarting) == (victim, 7, False)
        assert "asked to end" in gone.log_tail
        assert "asked to end" in await servers.logs(victim)
        assert servers.replicas == [other]
        assert not await servers.alive(victim)
        assert await servers.alive(other)
        assert sum(each["State"]["Running"] for each in swarm.containers()) == 1
        await servers.remove_replica(victim)
        assert len(swarm.services()) == 1
    assert exits == [gone], "on_exit is called from a thread of its own, which the end waits for"


async def test_a_server_that_needs_too_much_memory_is_said_to(provider: Make) -> None:
    servers = provider(memory="32m")
    async with servers:
        tell(servers.base_urls[0], "/grow")
        gone = await servers.wait_exited()
        assert gone.exit_code == 137
        assert gone.reason == "out of memory (memory=32 MiB)"


async def test_a_service_that_somebody_removed_is_told(swarm: Swarm, provider: Make) -> None:
    servers = provider(poll_s=0.2)
    async with servers:
        swarm.docker("service", "rm", swarm.services()[0]["ID"])
        assert "removed from the Swarm" in (await servers.wait_exited()).reason


async def test_a_server_that_swarm_is_to_restart_comes_back_under_its_name(provider: Make) -> None:
    servers = provider(restart="on-failure", restart_delay_s=0, poll_s=0.2)
    async with servers:
        before = servers.replicas[0]
        tell(before.base_url, "/exit/3")
        gone = await servers.wait_exited()
        assert (gone.replica, gone.exit_code, gone.restarting) == (before, 3, True)
        await until(lambda: servers.replicas[0].id != before.id)
        assert servers.replicas[0].name == before.name
        await servers.wait_ready()
        assert ask(servers.base_urls[0])
        assert await servers.alive()


async def test_lines_reach_the_callback_and_the_file(provider: Make, tmp_path: Any) -> None:
    lines: list[tuple[str, str]] = []
    servers = provider(on_log=lambda name, line: lines.append((name, line)), log_path=tmp_path / "log")
    async with servers:
        await until(lambda: bool(lines))
    assert lines[0] == ("cards-0", "serving, told ['plain']")
    assert "[cards-0] serving" in (tmp_path / "log").read_text()


async def test_a_cancelled_start_leaves_nothing(swarm: Swarm, provider: Make) -> None:
    servers = provider(replicas=2, command=told("never-ready"))
    async with anyio.create_task_group() as group:
        group.start_soon(servers.start)
        await until(lambda: bool(swarm.containers()))
        group.cancel_scope.cancel()
    assert swarm.is_empty(), swarm.left()


def test_the_call_shape_of_the_public_package(swarm: Swarm, provider: Make) -> None:
    servers = provider(image=None, name=None, ready_timeout_s=None)
    base_url = servers.start_container(
        swarm.image,
        env_vars={"DECK": "german"},
        replicas=2,
        cpu_limit=0.5,
        memory_limit="64m",
        constraints=["node.role==manager"],
        labels={"course": "old"},
        command="python /contained_server.py dealt twice",
    )
    servers.wait_for_ready(base_url, timeout_s=120)
    about = ask(base_url)
    assert (about["environment"]["DECK"], about["arguments"]) == ("german", ["dealt", "twice"])
    assert len(servers.base_urls) == 1
    containers = swarm.containers()
    assert [each["HostConfig"]["Memory"] for each in containers] == [64 << 20] * 2
    servers.stop_container()
    assert swarm.is_empty(), swarm.left()
    with pytest.raises(ConfigurationError, match="it has no field 'gpu_limit'"):
        servers.start_container(swarm.image, gpu_limit=1)


async def test_deaths_while_the_engine_was_away_are_told_when_it_is_back(swarm: Swarm, provider: Make) -> None:
    servers = provider(poll_s=0.2)
    async with servers:
        container = swarm.containers()[0]
        await anyio.to_thread.run_sync(swarm.engine.stop)
        await anyio.to_thread.run_sync(swarm.engine.start)
        gone = await servers.wait_exited()
        assert gone.replica.name == "cards-0"
        assert "engine was restarted" in gone.reason
        assert container["Id"] not in [each["Id"] for each in swarm.containers() if each["State"]["Running"]]
        fresh = await servers.add_replica()
        assert ask(fresh.base_url)
