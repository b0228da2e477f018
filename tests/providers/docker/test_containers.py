"""Containers come side by side, tell of their death, and go with all that they left."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from openenv_trl.errors import ProviderError
from openenv_trl.providers import Replica, ReplicaExit
from openenv_trl.providers.docker import LocalDockerProvider
from openenv_trl.providers.owner import this_owner
from tests.providers.docker.conftest import SERVE, left
from tests.providers.engines import docker

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


def inspected(replica: Replica) -> dict[str, Any]:
    return json.loads(docker("inspect", replica.id).stdout)[0]


def volumes_of(replica: Replica) -> list[str]:
    return [mount["Name"] for mount in inspected(replica)["Mounts"] if mount["Type"] == "volume"]


def volumes_left(names: list[str]) -> list[str]:
    return [name for name in names if docker("volume", "inspect", name, check=False).returncode == 0]


async def died(provider: LocalDockerProvider) -> ReplicaExit:
    with anyio.fail_after(60):
        return await provider.wait_exited()


def cut_off(ask: Callable[..., str], replica: Replica, what: str, argument: str = "") -> None:
    """Has a server do what it does not survive."""
    with pytest.raises((RemoteDisconnected, ConnectionResetError)):
        ask(replica.base_url, what, argument)


async def test_replicas_start_together_each_at_its_own_address_and_are_gone_after_the_block(
    image: str, ask: Callable[..., str]
) -> None:
    async with LocalDockerProvider(image=image, replicas=3, env_vars={"DECKS": 6}) as provider:
        assert len(set(provider.base_urls)) == 3
        assert all(url.startswith("http://127.0.0.1:") for url in provider.base_urls)
        assert [ask(url, "variable", "DECKS") for url in provider.base_urls] == ["6"] * 3
        assert await provider.alive()
        assert len(left()) == 6  # each container has a volume
    assert left() == []
    assert provider.replicas == []


def test_it_runs_without_an_event_loop_and_again_after_a_stop(image: str) -> None:
    provider = LocalDockerProvider(image=image)
    for _ in range(2):
        with provider:
            assert provider.alive_sync()
            assert provider.logs_sync() == "the cards are shuffled"
        assert left() == []


async def test_lines_reach_the_callback_and_the_file_from_the_very_first_on(image: str, tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    async with LocalDockerProvider(
        image=image, name="table", on_log=lambda *line: lines.append(line), log_path=tmp_path / "log"
    ):
        pass
    assert lines == [("table-0", "the cards are shuffled")]
    assert (tmp_path / "log").read_text() == "[table-0] the cards are shuffled\n"


async def test_a_flood_of_lines_keeps_neither_leases_nor_calls_nor_deaths_waiting(
    image: str, ask: Callable[..., str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with LocalDockerProvider(image=image, replicas=2, log_path=log, name="table") as provider:
        first, second = provider.replicas
        ask(first.base_url, "flood")
        with anyio.fail_after(60):
            while " lines left out" not in log.read_text():
                assert await provider.alive()
            for _ in range(100):  # where the loop takes lines one by one, each takes seconds
                assert await provider.alive()
            docker("kill", second.id)
            assert (await died(provider)).replica == second
        assert len((await provider.logs(first)).split("\n")) == 100


async def test_a_death_is_told_with_its_exit_code_and_last_lines_and_its_volume_goes(
    image: str, ask: Callable[..., str]
) -> None:
    told: list[ReplicaExit] = []
    async with LocalDockerProvider(image=image, replicas=2, on_exit=told.append) as provider:
        first, second = provider.replicas
        volumes = volumes_of(first)
        assert len(volumes) == 1
        assert this_owner().id in docker("volume", "inspect", *volumes).stdout
        cut_off(ask, first, "exit", "7")
        gone = await died(provider)
        assert (gone.replica, gone.exit_code) == (first, 7)
        assert gone.log_tail.splitlines() == ["the cards are shuffled", "the dealer has left"]
        assert "has died: ended with exit code 7. Its last lines:\nthe cards are shuffled" in gone.message
        assert provider.replicas == [second]
        assert not await provider.alive(first)
        assert await provider.alive(second)
        await provider.remove_replica(first)
        assert volumes_left(volumes) == []
    assert told == [gone]


async def test_a_kill_for_want_of_memory_says_so_and_which_limit_to_raise(image: str, ask: Callable[..., str]) -> None:
    async with LocalDockerProvider(image=image, memory="64m") as provider:
        cut_off(ask, provider.replicas[0], "eat")
        gone = await died(provider)
    assert gone.exit_code == 137
    assert gone.reason == "out of memory (limit 64 MiB; raise memory)"


async def test_a_kill_from_outside_says_that_somebody_did_it(image: str) -> None:
    async with LocalDockerProvider(image=image) as provider:
        docker("kill", provider.replicas[0].id)
        assert "exit code 137: somebody ended it through the Docker engine" in (await died(provider)).message


async def test_a_container_that_somebody_removes_is_a_death(image: str) -> None:
    async with LocalDockerProvider(image=image) as provider:
        docker("rm", "--force", provider.replicas[0].id)
        assert "has died" in (await died(provider)).message


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "cd / && python3 server.py"],
        ["sh", "-c", "trap '' TERM; python3 server.py"],
        [*SERVE, "--ignore-term"],
    ],
    ids=["shell", "deaf shell", "deaf server"],
)
async def test_stop_ends_whatever_process_1_is_and_removes_it_with_its_volume(image: str, command: list[str]) -> None:
    with anyio.fail_after(60):
        async with LocalDockerProvider(image=image, command=command, stop_grace_s=1) as provider:
            volumes = volumes_of(provider.replicas[0])
        assert left() == []
        assert volumes_left(volumes) == []


async def test_replicas_are_added_and_removed_side_by_side(image: str) -> None:
    provider = LocalDockerProvider(image=image)
    added: list[Replica] = []

    async def add() -> None:
        added.append(await provider.add_replica())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(add)
    assert len({replica.base_url for replica in added}) == 3
    async with anyio.create_task_group() as group:
        for replica in added[:2]:
            group.start_soon(provider.remove_replica, replica)
    assert provider.replicas == added[2:]
    assert len(left()) == 2
    await provider.stop()
    with pytest.raises(ProviderError, match="does not run"):
        await provider.wait_exited()


@pytest.mark.parametrize("after", ["create", "attach", "start"])
async def test_a_start_that_is_cancelled_leaves_nothing(
    image: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiodocker.containers import DockerContainer

    reached = anyio.Event()
    provider = LocalDockerProvider(image=image)
    name = {"create": "attach", "attach": "start", "start": "show"}[after]
    usual = getattr(DockerContainer, name)
    scope = anyio.CancelScope()

    def noticed(self: DockerContainer, *arguments: Any, **options: Any) -> Any:
        # The first call after the one in question: from here on nobody wants the container any more.
        portal.start_task_soon(give_up)
        return usual(self, *arguments, **options)

    async def give_up() -> None:
        scope.cancel()
        reached.set()

    monkeypatch.setattr(DockerContainer, name, noticed)
    async with anyio.from_thread.BlockingPortal() as portal:
        with scope:
            await provider.start()
    assert reached.is_set()
    assert left() == []
