"""An engine that stops or is restarted while its containers are in use."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest

from openenv_trl.errors import ProviderError
from openenv_trl.providers import ReplicaExit
from openenv_trl.providers.docker import LocalDockerProvider
from openenv_trl.providers.docker.engine_watch import EngineWatch
from tests.providers.docker.conftest import left
from tests.providers.engines import PrivateEngine, private_engine

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

WENT = "the Docker engine was stopped or restarted"


@pytest.fixture(scope="module")
def own_engine(image: str) -> Iterator[PrivateEngine]:
    with private_engine([image]) as engine:
        yield engine


async def died(provider: LocalDockerProvider) -> ReplicaExit:
    with anyio.fail_after(90):
        return await provider.wait_exited()


async def in_thread(function: Callable[..., Any], *arguments: Any) -> None:
    await anyio.to_thread.run_sync(function, *arguments)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_restart_is_told_as_the_death_of_each_replica_and_the_provider_goes_on(
    own_engine: PrivateEngine, image: str, how: signal.Signals
) -> None:
    provider = LocalDockerProvider(image=image, replicas=2, docker_host=own_engine.host)
    async with provider:
        first = provider.replicas
        await in_thread(own_engine.stop, how)
        await in_thread(own_engine.start)
        gone = [await died(provider), await died(provider)]
        assert {each.replica for each in gone} == set(first)
        assert [each.reason for each in gone] == [WENT, WENT]
        assert f"has died: {WENT}" in gone[0].message
        assert "the cards are shuffled" in gone[0].log_tail
        assert provider.replicas == []
        replica = await provider.add_replica()
        assert await provider.alive(replica)
        for each in first:
            await provider.remove_replica(each)
        assert provider.replicas == [replica]
    assert left(own_engine.host) == []
    assert own_engine.docker("volume", "ls", "--quiet").stdout == ""


async def test_what_a_new_engine_ends_as_it_begins_ended_with_the_old_one(
    own_engine: PrivateEngine, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def looks_too_late(_: EngineWatch) -> None:
        """The engine is back before anybody has looked whether the containers' servers still answer."""

    monkeypatch.setattr(EngineWatch, "_look_without_engine", looks_too_late)
    async with LocalDockerProvider(image=image, docker_host=own_engine.host) as provider:
        await in_thread(own_engine.stop, signal.SIGKILL)
        await in_thread(own_engine.start)
        assert (await died(provider)).reason == WENT
    assert left(own_engine.host) == []


async def test_an_engine_that_stays_away_is_told_and_stop_does_not_wait_for_it(
    own_engine: PrivateEngine, image: str
) -> None:
    provider = LocalDockerProvider(image=image, docker_host=own_engine.host)
    await provider.start()
    await in_thread(own_engine.stop)
    try:
        assert (await died(provider)).reason == WENT
        with pytest.raises(ProviderError, match="No Docker engine answers at unix://"):
            await provider.add_replica()
        with anyio.fail_after(60):
            await provider.stop()
        with pytest.raises(ProviderError, match="Start Docker"):
            await provider.start()
    finally:
        await in_thread(own_engine.start)
    async with provider:
        assert await provider.alive()
    assert left(own_engine.host) == []


async def test_stopping_while_the_engine_is_away_says_so_and_it_cleans_up_when_it_is_back(
    own_engine: PrivateEngine, image: str
) -> None:
    provider = LocalDockerProvider(image=image, docker_host=own_engine.host, network="internal")
    await provider.start()
    await in_thread(own_engine.stop)
    with anyio.fail_after(60):
        with contextlib.suppress(ProviderError):  # it says that the engine is away, unless it knew of the death before
            await provider.stop()
    await in_thread(own_engine.start)
    assert own_engine.docker("ps", "--all", "--quiet").stdout == ""
    async with provider:
        assert await provider.alive()
    assert left(own_engine.host) == []
