"""Clients and actions by name: what is installed, what is not, and where the server is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.client import AutoAction, AutoEnv, GenericAction, GenericEnvClient, MCPToolClient
from openenv_trl.client.discovery import installed_environments, normal_name
from openenv_trl.errors import ConfigurationError, ConnectionFailedError, SessionCapacityError
from openenv_trl.types import CallToolAction

CLIENT = """
from openenv_trl.client import EnvClient, GenericEnvClient, MCPToolClient
from openenv_trl.types import Action

class {stem}Env({base}):
    pass

class {action}(Action):
    text: str = ""
"""


class Containers:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.events: list[Any] = []

    def start_container(self, image: str, port: int | None = None, env_vars: Any = None, **arguments: Any) -> str:
        assert not arguments, "nothing stray is sent to the provider"
        self.events.append(("start", image, env_vars))
        return self.base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        self.events.append(("ready", base_url, timeout_s))

    def stop_container(self) -> None:
        self.events.append("stop")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install an environment package, as far as Python is concerned."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(
        package: str,
        module: str,
        manifest: str | None,
        *,
        base: str = "GenericEnvClient",
        action: str = "",
        client: str = "",
    ) -> None:
        stem = "".join(word.capitalize() for word in module.removesuffix("_env").split("_"))
        folder = tmp_path / module
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "client.py").write_text(
            client or CLIENT.format(stem=stem, base=base, action=action or f"{stem}Action")
        )
        if manifest is not None:
            (folder / "openenv.yaml").write_text(manifest)
        facts = tmp_path / f"{package.replace('-', '_')}-1.2.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.delitem(sys.modules, f"{module}.client", raising=False)

    return add


def test_an_installed_environment_is_found_by_each_of_its_names() -> None:
    for name in ("blackjack", "blackjack-env", "blackjack_env", "Blackjack"):
        assert AutoEnv.get_env_info(name)["package"] == "openenv-blackjack_env"
    assert AutoEnv.get_env_class("blackjack").__name__ == "BlackjackEnv"
    assert AutoAction.from_env("blackjack").__name__ == "BlackjackAction"
    assert normal_name("my-game") == "my_game_env"


def test_looking_imports_nothing(install: Callable[..., None]) -> None:
    install("openenv-loud-env", "loud_env", "name: loud_env", client="raise RuntimeError('imported')")
    assert "loud_env" in installed_environments()
    assert AutoEnv.get_env_info("loud")["module"] == "loud_env.client"
    assert "loud_env.client" not in sys.modules


def test_what_a_manifest_says_comes_before_what_its_name_tells(install: Callable[..., None]) -> None:
    manifest = "spec_version: 1\nname: word_game\ndescription: Guess.\naction: Guess\nobservation: Seen\n"
    install("openenv-word-game-env", "word_game_env", manifest, action="Guess")
    assert AutoEnv.get_env_info("word-game") == {
        "env_key": "word_game",
        "name": "word_game_env",
        "package": "openenv-word-game-env",
        "version": "1.2",
        "description": "Guess.",
        "env_class": "WordGameEnv",
        "action_class": "Guess",
        "observation_class": "Seen",
        "module": "word_game_env.client",
        "default_image": "word-game-env:latest",
        "spec_version": 1,
    }
    assert AutoAction.from_env("word_game").__name__ == "Guess"
    assert AutoAction.get_action_info("word_game")["env_name"] == "word_game_env"
    with pytest.raises(ConfigurationError, match="has no class Seen"):
        installed_environments()["word_game_env"].observation_class()


def test_packages_with_and_without_prefix_and_manifest(install: Callable[..., None]) -> None:
    install("plain_env", "plain_env", "name: plain_env")
    install("openenv-bare-env", "bare_env", None)
    install("virtual-env", "virtual_env", None)
    install("openenv-broken-env", "broken_env", "name: [")
    found = installed_environments()
    assert {"plain_env", "bare_env", "broken_env"} <= set(found)
    assert "virtual_env" not in found
    assert found["bare_env"].spec_version is None


def test_an_environment_of_tools_has_the_call_of_a_tool_for_its_action(install: Callable[..., None]) -> None:
    install("openenv-desk-env", "desk_env", "name: desk_env", base="MCPToolClient", action="Other")
    assert issubclass(AutoEnv.get_env_class("desk"), MCPToolClient)
    assert AutoAction.from_env("desk") is CallToolAction


def test_a_package_that_cannot_be_imported_says_why(install: Callable[..., None]) -> None:
    install("openenv-torn-env", "torn_env", "name: torn_env", client="import a_module_that_is_not_there")
    with pytest.raises(ConfigurationError, match=r"TornEnv of .*cannot be imported.*a_module_that_is_not_there"):
        AutoEnv.get_env_class("torn")


def test_an_unknown_name_tells_what_there_is() -> None:
    for ask in (AutoEnv.get_env_class, AutoEnv.get_env_info, AutoAction.from_env, AutoEnv.from_env):
        with pytest.raises(ConfigurationError, match=r"Did you mean 'blackjack_env'\?.*skip_install=True") as caught:
            ask("blackjak")
    assert isinstance(caught.value, ValueError)


def test_the_lists_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    AutoEnv.list_environments()
    AutoAction.list_actions()
    printed = capsys.readouterr().out
    assert "blackjack" in printed
    assert "BlackjackAction" in printed


def test_they_are_not_instantiated() -> None:
    for kind in (AutoEnv, AutoAction):
        with pytest.raises(TypeError, match="from_env"):
            kind()


@pytest.mark.parametrize("how", ["async with", "with", "sync", "await"])
def test_a_client_by_name_works_in_every_way_and_leaves_no_session(
    lonely_parrot: str, how: str, install: Callable[..., None]
) -> None:
    install("openenv-parrot-env", "parrot_env", "name: parrot_env")
    for _ in range(3):  # one slot: a session that stayed would be told by the next
        client = AutoEnv.from_env("parrot", base_url=lonely_parrot, message_timeout_s=20.0)
        assert type(client).__name__ == "ParrotEnv"

        async def play(client: Any = client) -> None:
            env = await client
            assert (await env.reset()).observation["text"] == "ready"
            await env.close()

        async def play_with(client: Any = client) -> None:
            async with client as env:
                assert (await env.reset()).observation["text"] == "ready"

        if how == "await":
            asyncio.run(play())
        elif how == "async with":
            asyncio.run(play_with())
        else:
            with client if how == "with" else client.sync() as env:
                assert env.reset().observation["text"] == "ready"


def test_a_container_is_run_by_the_users_provider(parrot: str, install: Callable[..., None]) -> None:
    install("openenv-parrot-env", "parrot_env", "name: parrot_env")
    provider = Containers(parrot)
    with AutoEnv.from_env("parrot", container_provider=provider, env_vars={"A": "1"}, wait_timeout=7.0) as env:
        env.reset()
    assert provider.events == [("start", "parrot-env:latest", {"A": "1"}), ("ready", parrot, 7.0), "stop"]
    provider.events.clear()
    with AutoEnv.from_env("parrot", docker_image="mine:2", container_provider=provider) as env:
        env.reset()
    assert provider.events[0] == ("start", "mine:2", None)


def test_an_installed_environment_is_served_from_its_package_where_docker_has_no_image_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    client = AutoEnv.from_env("blackjack", env_vars={"MAX_CONCURRENT_ENVS": "1"})
    assert client.base_url is None
    with client as env:
        assert env.reset(seed=1).observation is not None
        with pytest.raises(SessionCapacityError):
            env.new_session()
        url = client.base_url
    with pytest.raises(ConnectionFailedError), GenericEnvClient(url) as env:
        env.reset()


def test_without_anything_to_start_it_says_what_to_give(install: Callable[..., None]) -> None:
    with pytest.raises(ConfigurationError, match=r"base_url=.*docker_image=.*'parrot-env:latest'"):
        AutoEnv.from_env("parrot", skip_install=True)
    install("openenv-bare-env", "bare_env", None)
    with (
        pytest.raises(ConfigurationError, match=r"has no openenv.yaml.*base_url=.*bare-env:latest"),
        AutoEnv.from_env("bare", skip_install=True) as env,
    ):
        env.reset()


@pytest.mark.parametrize(
    "name",
    ["owner/Some_Game.x", "https://huggingface.co/spaces/owner/Some_Game.x", "huggingface.co/owner/Some_Game.x/"],
)
def test_a_name_of_the_hub_is_its_running_space(name: str) -> None:
    client = AutoEnv.from_env(name, skip_install=True)
    assert isinstance(client, GenericEnvClient)
    assert client.base_url is None  # the Hub is asked for the Space when the client connects
    with pytest.raises(ConfigurationError, match=r"not installed.*pip install git\+https.*owner/Some_Game\.x"):
        AutoEnv.from_env(name, trust_remote_code=True)


def test_a_name_of_the_hub_is_its_own_class_where_its_package_is_installed(parrot: str) -> None:
    assert type(AutoEnv.from_hub("owner/blackjack_env")).__name__ == "BlackjackEnv"
    assert AutoAction.from_hub("owner/blackjack_env").__name__ == "BlackjackAction"
    provider = Containers(parrot)
    with AutoEnv.from_env("o/n", container_provider=provider, skip_install=True) as env:
        env.reset()
    assert provider.events[0] == ("start", "registry.hf.space/o-n:latest", None)
    with pytest.raises(ConfigurationError, match="owner/name"):
        AutoEnv.from_env("owner/")


def test_the_generic_classes_do_where_nothing_is_to_be_installed(parrot: str) -> None:
    with AutoEnv.from_env("anything", base_url=parrot, skip_install=True) as env:
        action = AutoAction.from_env("anything", skip_install=True)
        assert action is GenericAction
        assert env.step(action(text="hi")).observation["text"] == "hi"
