"""Providers that were written for the public package, used as ours."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError
from urllib.request import urlopen

import anyio
import pytest

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.providers.container_calls import ContainerProvider, RuntimeProvider
from openenv_trl.providers.plugged import PluggedProvider
from openenv_trl.providers.ports import PortReservation

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent / "plain_server.py"


class Server:
    """What both kinds of third party run here: a child process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.port: PortReservation | None = None
        self.closed = False

    def serve(self, *options: str) -> str:
        self.port = PortReservation("127.0.0.1")  # held, or somebody else may have it before the server
        self.process = subprocess.Popen([sys.executable, str(SERVER), "--port", str(self.port.port), *options])
        return f"http://127.0.0.1:{self.port.port}/"

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.port is not None:
            self.port.close()

    def wait(self, base_url: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                urlopen(f"{base_url.rstrip('/')}/health", timeout=5).close()
            except (URLError, OSError):
                time.sleep(0.05)
            else:
                return
        raise TimeoutError("the third party has waited long enough")


class ThirdParty(ContainerProvider):
    """As one from another package: it subclasses what is there to be subclassed."""

    made: ClassVar[list[ThirdParty]] = []

    def __init__(self) -> None:
        self.server = Server()
        self.arguments: tuple[Any, ...] = ()
        self.made.append(self)

    def start_container(
        self, image: str, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        self.arguments = (image, port, env_vars, kwargs)
        if kwargs.get("fails"):
            self.server.serve()
            raise RuntimeError("the cloud is full")
        return self.server.serve(*kwargs.get("options", []))

    def stop_container(self) -> None:
        self.server.end()

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        self.server.wait(base_url, timeout_s)

    def close(self) -> None:
        self.server.closed = True


class ThirdRuntime(RuntimeProvider):
    made: ClassVar[list[ThirdRuntime]] = []

    def __init__(self) -> None:
        self.server = Server()
        self.url = ""
        self.made.append(self)

    def start(self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any) -> str:
        self.url = self.server.serve()
        return self.url

    def stop(self) -> None:
        self.server.end()

    def wait_for_ready(self, timeout_s: float = 30.0) -> None:
        self.server.wait(self.url, timeout_s)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThirdParty, "made", [])
    monkeypatch.setattr(ThirdRuntime, "made", [])


def all_ended(providers: list[Any]) -> bool:
    return all(each.server.process is None or each.server.process.poll() is not None for each in providers)


async def test_each_replica_has_a_provider_of_its_own_that_is_given_what_was_asked_for() -> None:
    async with PluggedProvider(ThirdParty, "echo-env", replicas=3, env_vars={"DECKS": "6"}, region="north") as provider:
        assert len(ThirdParty.made) == len(set(provider.base_urls)) == 3
        assert all(url.startswith("http://127.0.0.1:") and not url.endswith("/") for url in provider.base_urls)
        assert {str(each.arguments) for each in ThirdParty.made} == {
            str(("echo-env", None, {"DECKS": "6"}, {"region": "north"}))
        }
        assert await provider.alive()
        assert [replica.name for replica in provider.replicas] == [f"thirdparty-{number}" for number in range(3)]
        await provider.remove_replica(provider.replicas[0])
        await provider.add_replica()
    assert len(ThirdParty.made) == 4
    assert all_ended(ThirdParty.made)
    assert all(each.server.closed for each in ThirdParty.made)


def test_one_that_starts_itself_is_used_alike_also_without_a_loop() -> None:
    with PluggedProvider(ThirdRuntime, replicas=2, name="table") as provider:
        assert provider.alive_sync()
        assert provider.replicas[0].name == "table-0"
    assert all_ended(ThirdRuntime.made)


async def test_a_start_that_fails_says_how_and_leaves_nothing() -> None:
    provider = PluggedProvider(ThirdParty, "echo-env", replicas=2, fails=True)
    with pytest.raises(ServerStartError, match="could not be started: ThirdParty: RuntimeError: the cloud is full"):
        await provider.start()
    assert all_ended(ThirdParty.made)


async def test_one_that_is_not_ready_in_time_says_so_and_leaves_nothing() -> None:
    provider = PluggedProvider(ThirdParty, "echo-env", ready_timeout_s=2, options=["--never-ready"])
    with pytest.raises(ServerStartError, match="TimeoutError: the third party has waited long enough"):
        await provider.start()
    assert all_ended(ThirdParty.made)


async def test_a_server_that_dies_is_noticed_by_its_silence() -> None:
    async with PluggedProvider(ThirdParty, "echo-env", look_s=0.05, ready_timeout_s=60) as provider:
        ThirdParty.made[0].server.end()
        with anyio.fail_after(120):
            gone = await provider.wait_exited()
        assert "failed 3 health checks in a row" in gone.message
        assert not await provider.alive()


async def test_what_is_no_provider_is_refused_with_what_to_pass() -> None:
    with pytest.raises(ConfigurationError, match=r"was given a ThirdParty\. Pass lambda: provider"):
        PluggedProvider(ThirdParty(), "echo-env")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="neither start_container nor start"):
        await PluggedProvider(dict, "echo-env").start()


def test_the_abstract_classes_ask_for_their_three_calls_and_serve_as_blocks() -> None:
    for kind in (ContainerProvider, RuntimeProvider):
        with pytest.raises(TypeError, match="abstract"):
            kind()  # type: ignore[abstract]
    with ThirdParty() as containers:
        assert not containers.server.closed
    assert containers.server.closed
    with ThirdRuntime() as runtime:
        runtime.wait_for_ready(60)
    assert all_ended([runtime])
