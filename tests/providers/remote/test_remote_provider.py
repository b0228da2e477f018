"""Servers that run already: used, watched, and never stopped."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers import ProcessProvider
from openenv_trl.providers.base import Replica
from openenv_trl.providers.remote import RemoteProvider, RemoteSpec
from openenv_trl.providers.specs import make_provider, read_spec

pytestmark = pytest.mark.anyio


async def test_servers_that_run_are_used_and_never_stopped() -> None:
    async with ProcessProvider("environments/blackjack_env", replicas=2) as servers:
        provider = RemoteProvider(servers.base_urls)
        endpoint = await provider.start()
        assert endpoint.base_urls == servers.base_urls
        assert await provider.alive()
        await provider.wait_ready(timeout_s=20)
        assert "elsewhere" in await provider.logs()
        async with GenericEnvClient(endpoint.base_url) as env:
            assert (await env.reset(seed=1)).observation is not None
        await provider.stop()
        assert await servers.alive()
        async with GenericEnvClient(servers.base_urls[0]) as env:
            await env.reset()


async def test_a_client_is_given_a_remote_server_as_any_other() -> None:
    async with ProcessProvider("environments/blackjack_env") as servers:
        async with GenericEnvClient(provider=RemoteProvider(servers.base_urls[0])) as env:
            await env.reset()
        assert await servers.alive()


async def test_a_server_that_stops_to_answer_counts_as_dead_and_its_address_may_be_tried_again() -> None:
    seen: list[str] = []
    async with ProcessProvider("environments/blackjack_env", replicas=2) as servers:
        provider = RemoteProvider(
            servers.base_urls, check_every_s=0.1, dead_after_s=0.3, on_exit=lambda gone: seen.append(gone.replica.name)
        )
        async with provider:
            await servers.remove_replica(servers.replicas[0])
            with anyio.fail_after(60):
                gone = await provider.wait_exited()
            assert gone.replica.name == "remote-0"
            assert "no healthy answer for" in gone.message
            assert "ConnectError" in gone.message
            assert [each.name for each in provider.replicas] == ["remote-1"]
            assert not await provider.alive(gone.replica)
            assert await provider.alive(provider.replicas[0])
            await provider.remove_replica(gone.replica)
            with pytest.raises(ServerStartError, match="ConnectError"):
                await make_ready(provider)
            with pytest.raises(ProviderError, match="runs already"):
                await provider.start()
    assert seen[0] == "remote-0"


async def make_ready(provider: RemoteProvider) -> Replica:
    """Tries the address that is free now, for a moment only."""
    provider._spec = provider.spec.model_copy(update={"ready_timeout_s": 0.5})
    return await provider.add_replica()


async def test_more_replicas_than_addresses_are_refused() -> None:
    async with ProcessProvider("environments/blackjack_env") as servers, RemoteProvider(servers.base_urls) as provider:
        with pytest.raises(ProviderError, match="all 1 addresses are in use"):
            await provider.add_replica()


async def test_a_server_that_is_not_there_is_told() -> None:
    provider = make_provider({"type": "remote", "urls": ["http://127.0.0.1:1"], "ready_timeout_s": 0.3})
    with pytest.raises(ServerStartError, match=r"remote-0 was not ready within 0.3 s: nothing listens at") as caught:
        await provider.start()
    assert "http://127.0.0.1:1 (ConnectError" in str(caught.value)
    assert "Check the address, or start the server there" in str(caught.value)
    assert "look at what it wrote" not in str(caught.value)
    assert provider.replicas == []


async def test_where_nobody_says_how_long_to_wait_an_address_without_a_server_is_told_soon() -> None:
    with pytest.raises(ServerStartError, match=r"within 5 s: nothing listens at http://127.0.0.1:1 "):
        await RemoteProvider("http://127.0.0.1:1").start()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "urls: Field required"),
        ({"urls": []}, "urls"),
        ({"urls": ["ftp://host"]}, "no address of a server"),
        ({"urls": ["http://host:port"]}, "no address"),
        ({"urls": ["http://h:1", "ws://H:1/ws"]}, "names a server twice"),
        ({"urls": ["http://h:1"], "replicas": 2}, "replicas=2, but there are 1 urls"),
        ({"urls": ["http://h:1"], "env_vars": {"A": 1}}, "env_vars cannot be set"),
        ({"urls": ["http://h:1"], "header": {}}, "is 'headers' meant"),
    ],
)
def test_settings_that_cannot_work_say_what_to_change(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        read_spec({"type": "remote", **fields})


def test_addresses_of_every_form_are_taken_and_secrets_are_not_shown() -> None:
    spec = read_spec({"type": "remote", "urls": ["ws://h:1/ws", "h2:2"], "headers": {"Authorization": "secret"}})
    assert isinstance(spec, RemoteSpec)
    assert spec.replicas == 2
    assert "secret" not in repr(spec)
    with pytest.raises(ConfigurationError, match="not both"):
        RemoteProvider(spec, check_every_s=1)
