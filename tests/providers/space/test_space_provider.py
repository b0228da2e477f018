"""A Space is reached by its name, woken where it sleeps, and says what is wrong where it cannot be used."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from openenv_trl.client import AutoEnv, GenericEnvClient
from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers.hub import repository_of, space_image, space_project, space_url
from openenv_trl.providers.space import SpaceProvider
from openenv_trl.providers.specs import make_provider, read_spec

pytestmark = pytest.mark.anyio


async def test_an_episode_is_played_on_a_space_by_its_name(hub: Any) -> None:
    async with GenericEnvClient(provider=SpaceProvider("owner/game")) as env:
        assert env.base_url == f"{hub.url}/at/owner/game"
        result = await env.reset(seed=1)
        for _ in range(30):
            if result.done:
                break
            result = await env.step({"move": "stand"})
        assert result.done
    assert not any("Authorization" in headers for headers in hub.spaces["owner/game"].seen)


async def test_a_sleeping_space_is_woken_and_waited_for(hub: Any) -> None:
    space = hub.spaces["owner/game"]
    space.stage, space.wakes_after = "SLEEPING", 3
    provider = make_provider({"type": "space", "space": "owner/game"})
    async with provider:
        assert space.stage == "RUNNING"
        assert await provider.alive()
        assert "owner/game" in await provider.logs()
        assert [replica.name for replica in provider.replicas] == ["game-0"]
    assert space.stage == "RUNNING"


async def test_a_space_that_does_not_wake_in_time_is_told(hub: Any) -> None:
    space = hub.spaces["owner/game"]
    space.stage, space.wakes_after = "SLEEPING", 10**6
    provider = SpaceProvider("owner/game", ready_timeout_s=0.5)
    with pytest.raises(ServerStartError, match=r"not ready within 0.5 s.*the Hub calls it (SLEEPING|APP_STARTING)"):
        await provider.start()
    assert provider.replicas == []


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("PAUSED", "it is paused: its owner starts it again"),
        ("STOPPED", "it was stopped"),
        ("BUILD_ERROR", r"its image could not be built: its page shows the build's log.*/spaces/owner/game"),
        ("RUNTIME_ERROR", "its server ended with an error"),
        ("CONFIG_ERROR", "README.md"),
        ("NO_APP_FILE", "Dockerfile"),
    ],
)
async def test_a_space_that_waiting_does_not_help_is_told_at_once(hub: Any, stage: str, text: str) -> None:
    hub.spaces["owner/game"].stage = stage
    hub.spaces["owner/game"].error = "exit code 1: no module named game"
    with pytest.raises(ServerStartError, match=text) as caught:
        await SpaceProvider("owner/game").start()
    assert "no module named game" in str(caught.value)


async def test_a_space_that_breaks_while_it_wakes_is_told_then(hub: Any) -> None:
    space = hub.spaces["owner/game"]
    space.stage, space.wakes_after, space.wakes_as = "SLEEPING", 2, "RUNTIME_ERROR"
    with anyio.fail_after(60), pytest.raises(ServerStartError, match="ended with an error"):
        await SpaceProvider("owner/game").start()


async def test_a_private_space_is_sent_the_token_and_a_public_one_is_not(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = hub.spaces["owner/game"]
    private.private, private.token = True, "hf_secret"
    with pytest.raises(ConfigurationError, match=r"may not be seen.*set HF_TOKEN"):
        await SpaceProvider("owner/game").start()
    with pytest.raises(ConfigurationError, match=r"that the token that was sent may read it"):
        await SpaceProvider("owner/game", token="hf_other").start()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    provider = SpaceProvider("owner/game")
    async with GenericEnvClient(provider=provider) as env:
        await env.reset()
    assert {headers.get("Authorization") for headers in private.seen} == {"Bearer hf_secret"}
    private.private = False
    private.seen.clear()
    async with provider:
        assert provider.replicas[0].headers == {}
    assert not any("Authorization" in headers for headers in private.seen)
    async with SpaceProvider("owner/game", token="hf_mine") as given:
        assert given.replicas[0].headers == {"Authorization": "Bearer hf_mine"}
        assert "hf_mine" not in repr(given.spec) + repr(given.replicas)


async def test_names_that_there_are_not_and_a_hub_that_does_not_answer_are_told(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"The Space owner/other was not found.*404"):
        await SpaceProvider("owner/other").start()
    hub.broken = True
    with pytest.raises(ProviderError, match="not what it should be"):
        await SpaceProvider("owner/game").start()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ProviderError, match=r"The Hub did not answer.*HF_ENDPOINT"):
        await SpaceProvider("owner/game").start()


async def test_a_space_that_goes_to_sleep_counts_as_dead_and_the_client_is_told_why(hub: Any) -> None:
    provider = SpaceProvider("owner/game", check_every_s=0.1, dead_after_s=0.2)
    async with provider:
        hub.spaces["owner/game"].stage = "PAUSED"
        with anyio.fail_after(60):
            gone = await provider.wait_exited()
        assert "the Hub calls it PAUSED" in gone.message
        assert not await provider.alive()


async def test_a_hub_that_goes_away_is_no_death_of_the_space(hub: Any) -> None:
    provider = SpaceProvider("owner/game", check_every_s=0.05, dead_after_s=0.1)
    async with GenericEnvClient(provider=provider) as env:
        hub.broken = True
        await env.reset()
        assert await env.step({"move": "stand"}) is not None
        assert [each.name for each in provider.replicas] == ["game-0"]


async def test_a_second_server_of_one_space_is_refused(hub: Any) -> None:
    async with SpaceProvider("owner/game") as provider:
        with pytest.raises(ProviderError, match="is one server, and is in use"):
            await provider.add_replica()


def test_an_environment_of_the_hub_is_played_by_name_without_its_package(hub: Any) -> None:
    with AutoEnv.from_env("owner/game", skip_install=True) as env:
        assert env.reset(seed=3).observation is not None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"space": "game"}, "write it as owner/name"),
        ({"space": "owner/"}, "write it as owner/name"),
        ({"space": "owner/../api"}, "write it as owner/name"),
        ({"space": "owner/game?x=1"}, "write it as owner/name"),
        ({"space": "owner/game", "replicas": 2}, "a Space is one server"),
        ({"space": "owner/game", "env_vars": {"A": "1"}}, "among its settings on the Hub"),
        ({"space": "owner/game", "tokens": "x"}, "is 'token' meant"),
    ],
)
def test_settings_that_cannot_work_say_what_to_change(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        read_spec({"type": "space", **fields})


def test_a_repository_has_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    for name in ("o/A_b.c", "https://huggingface.co/spaces/o/A_b.c", "huggingface.co/o/A_b.c/"):
        assert repository_of(name) == "o/A_b.c"
    assert repository_of("echo") is None
    assert space_url("o/A_b.c") == "https://o-a-b-c.hf.space"
    assert space_image("o/A_b.c", "7") == "registry.hf.space/o-a-b-c:7"
    assert space_project("o/A_b.c") == "git+https://huggingface.co/spaces/o/A_b.c"
