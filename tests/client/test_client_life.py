"""How a client's session begins and ends: servers of its own, waiting for a slot, leaving, and the wrong loop."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from websockets.sync.server import ServerConnection

from openenv_trl.client import EnvClient, GenericEnvClient, SyncEnvClient
from openenv_trl.client.native_session import NativeLink
from openenv_trl.client.transport import AwaitedSocket
from openenv_trl.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ServerStartError,
    SessionCapacityError,
    SessionLostError,
    SessionStateError,
)
from openenv_trl.types import StepResult

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("wire")]
Scripted = Callable[..., str]

FULL = '{"type":"error","data":{"message":"Server at capacity: 1/1 sessions active.","code":"CAPACITY_REACHED"}}'


class Containers:
    """A provider as users have them for the public package: blocking, one container."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.events: list[Any] = []
        self.fails_to_stop = 0

    def start_container(self, image: str, port: int | None = None, **arguments: Any) -> str:
        self.events.append(("start", image, arguments))
        return self.base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        self.events.append(("ready", base_url))

    def stop_container(self) -> None:
        self.events.append("stop")
        if self.fails_to_stop:
            self.fails_to_stop -= 1
            raise OSError("the engine is busy")


class Runtime:
    """A provider that starts without arguments; asynchronous, and gives replicas as this package's own do."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.events: list[str] = []

    async def start(self) -> Any:
        self.events.append("start")
        return self.given

    async def stop(self) -> None:
        self.events.append("stop")


class Replica:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url


def test_a_client_needs_a_server() -> None:
    with pytest.raises(ConfigurationError, match=r"base_url.*or a provider") as caught:
        GenericEnvClient()
    assert isinstance(caught.value, ValueError)


async def test_a_server_of_the_clients_own_lives_as_long_as_the_client(parrot: str) -> None:
    provider = Runtime([Replica(parrot)])
    client = GenericEnvClient(provider=provider)
    assert client.base_url is None
    assert provider.events == []
    async with client as env:
        assert env.base_url == parrot
        assert (await env.reset()).observation["text"] == "ready"
        assert provider.events == ["start"]
    assert provider.events == ["start", "stop"]
    await client.close()
    assert provider.events == ["start", "stop"]


async def test_a_server_is_stopped_where_no_session_came_about(parrot: str) -> None:
    provider = Runtime("127.0.0.1:1")
    client = GenericEnvClient(provider=provider)
    with pytest.raises(ConnectionFailedError):
        await client.connect()
    assert provider.events == ["start", "stop"]
    provider.given = parrot
    await client.connect()
    await client.close()
    assert provider.events == ["start", "stop", "start", "stop"]


async def test_a_provider_that_gives_no_address_is_told(parrot: str) -> None:
    provider = Runtime([])
    with pytest.raises(ServerStartError, match="Runtime started, but gave no address"):
        await GenericEnvClient(provider=provider).connect()
    assert provider.events == ["start", "stop"]


@pytest.mark.parametrize("how", ["awaited", "entered", "blocking", "plain with"])
def test_an_image_is_run_by_the_users_provider_and_locks_the_client_to_no_loop(parrot: str, how: str) -> None:
    provider = Containers(parrot)
    client = GenericEnvClient.from_docker_image("parrot:1", provider=provider, memory="1g")
    assert provider.events == []

    async def play() -> None:
        if how == "awaited":
            env = await client
            await env.reset()
            await env.close()
        else:
            async with client as env:
                await env.reset()

    if how in ("awaited", "entered"):
        asyncio.run(play())
    elif how == "blocking":
        with client.sync() as env:
            env.reset()
    else:
        with client as env:
            env.reset()
    assert provider.events == [("start", "parrot:1", {"memory": "1g"}), ("ready", parrot), "stop"]


async def test_a_provider_that_failed_to_stop_is_asked_again(parrot: str) -> None:
    provider = Containers(parrot)
    provider.fails_to_stop = 1
    client = await GenericEnvClient.from_docker_image("parrot:1", provider=provider)
    with pytest.raises(OSError, match="busy"):
        await client.close()
    await client.close()
    await client.close()
    assert provider.events.count("stop") == 2


async def test_a_server_that_runs_already_is_only_stopped(parrot: str) -> None:
    provider = Containers(parrot)
    async with GenericEnvClient(parrot, provider=provider) as env:
        await env.reset()
    assert provider.events == ["stop"]


def test_a_provider_that_cannot_start_so_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"missing a required argument: 'image'.*from_docker_image"):
        GenericEnvClient(provider=Containers(""))
    with pytest.raises(ConfigurationError, match=r"no method start\(\)"):
        GenericEnvClient(provider=object())
    with pytest.raises(ConfigurationError, match=r"no method stop_container\(\)"):
        GenericEnvClient.from_docker_image("image", provider=object())


async def test_a_repository_of_the_hub_is_run_by_the_users_provider(parrot: str) -> None:
    provider = Containers(parrot)
    async with GenericEnvClient.from_env("owner/a_game", provider=provider, tag="7", memory="1g") as env:
        await env.reset()
    assert provider.events[0] == ("start", "registry.hf.space/owner-a-game:7", {"memory": "1g"})
    async with GenericEnvClient.from_env("owner/a_game", use_docker=False, provider=Runtime(parrot)) as env:
        await env.reset()
    with pytest.raises(ConfigurationError, match="write it as owner/name"):
        GenericEnvClient.from_env("a_game")
    with pytest.raises(ConfigurationError, match=r"give the provider itself what port says"):
        GenericEnvClient.from_env("owner/a_game", use_docker=False, provider=Runtime(parrot), port=1)


async def test_a_server_that_shuts_down_is_not_waited_for(scripted: Scripted) -> None:
    tries: list[int] = []

    def play(connection: ServerConnection) -> None:
        tries.append(1)
        told = {"message": "It shuts down.", "code": "CAPACITY_REACHED", "active_sessions": 1, "max_sessions": 2}
        connection.send(json.dumps({"type": "error", "data": {**told, "reason": "draining"}}))

    with anyio.fail_after(20), pytest.raises(SessionCapacityError) as caught:
        await GenericEnvClient(scripted(play), wire="openenv", wait_for_slot_s=60).connect()
    assert (str(caught.value), caught.value.draining, len(tries)) == ("It shuts down.", True, 1)


async def test_a_client_waits_for_a_slot_as_long_as_it_said(lonely_parrot: str) -> None:
    async with GenericEnvClient(lonely_parrot) as first, anyio.create_task_group() as tasks:
        second = GenericEnvClient(lonely_parrot, wait_for_slot_s=30)
        tasks.start_soon(second.connect)
        with pytest.raises(SessionCapacityError, match=r"None became free within wait_for_slot_s=0\.1 s"):
            await GenericEnvClient(lonely_parrot, wait_for_slot_s=0.1).connect()
        with pytest.raises(SessionCapacityError, match="wait_for_slot_s=60"):
            await GenericEnvClient(lonely_parrot).connect()
        await first.close()
    assert second.is_open
    await second.close()


async def test_a_server_is_told_how_long_a_client_waits_and_asked_again_if_it_cannot_wait(scripted: Scripted) -> None:
    asked: list[float] = []

    def play(connection: ServerConnection) -> None:
        assert connection.request
        asked.append(float(connection.request.headers["OpenEnv-Session-Wait"]))
        if len(asked) < 3:
            connection.send(FULL)
        else:
            connection.recv()
            connection.send('{"type":"mcp","data":{"jsonrpc":"2.0","id":"connect","result":{}}}')
            connection.recv()

    began = time.monotonic()
    client = await GenericEnvClient(scripted(play), wait_for_slot_s=60).connect()
    took_s = time.monotonic() - began
    await client.close()
    assert len(asked) == 3
    assert 60 >= asked[0] > asked[1] > asked[2] >= 60 - took_s - 0.01


async def test_after_leaving_only_connect_and_reset_begin_a_new_session(parrot: str) -> None:
    client = GenericEnvClient(parrot)
    await client.step({"text": "one"})
    await client.disconnect()
    assert not client.is_open
    for call in (client.step({"text": "two"}), client.state(), client.list_tools()):
        with pytest.raises(SessionStateError, match=r"it was disconnected; call connect\(\) or reset\(\)"):
            await call
    await client.reset()
    assert (await client.state())["step_count"] == 0
    await client.disconnect()
    await client.connect()
    await client.step({"text": "three"})
    await client.close()
    with pytest.raises(SessionStateError, match="the client is closed"):
        await client.reset()


async def test_a_lost_session_is_left_on_purpose_or_not_at_all(
    parrot: str, parrot_waits: Callable[[], bool], let_parrot_go: Callable[[], None]
) -> None:
    client = await GenericEnvClient(parrot).connect()
    with pytest.raises(TimeoutError):
        await client.step({"waits": True}, timeout_s=0.2)
    let_parrot_go()
    for call in (client.reset, client.connect, client.state):
        with pytest.raises(SessionLostError):
            await call()
    await client.disconnect()
    assert (await client.reset()).observation["text"] == "ready"
    await client.close()


async def test_a_client_closed_while_it_waits_for_a_slot_leaves_no_session(lonely_parrot: str) -> None:
    async with GenericEnvClient(lonely_parrot) as first:
        waiting = GenericEnvClient(lonely_parrot, wait_for_slot_s=30)

        async def wait() -> None:
            with pytest.raises(SessionStateError, match="closed"):
                await waiting.connect()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await waiting.close()
            await first.close()
    async with GenericEnvClient(lonely_parrot, wait_for_slot_s=60) as next_one:
        await next_one.reset()


class Named(EnvClient[str, str, int]):
    """As written for the public package, with a constructor of its own."""

    def __init__(self, base_url: str, name: str) -> None:
        super().__init__(base_url=base_url, message_timeout_s=30.0)
        self.name = name

    def _step_payload(self, action: str) -> dict[str, Any]:
        return {"text": f"{self.name}: {action}"}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[str]:
        return StepResult(payload["observation"]["text"], payload["reward"], payload["done"])

    def _parse_state(self, payload: dict[str, Any]) -> int:
        return payload["step_count"]

    async def say_twice(self, text: str) -> str:
        await self.step(text)
        return (await self.step(text)).observation


async def test_another_session_on_the_same_server_is_the_clients_like(parrot: str) -> None:
    async with Named(parrot, "polly") as first:
        await first.step("a")
        second = await first.new_session()
        assert isinstance(second, Named)
        assert (await second.step("b")).observation == "polly: b"
        await second.step("c")
        assert (await first.state(), await second.state()) == (1, 2)
    assert not second.is_open


def test_the_blocking_client_has_all_of_it(parrot: str) -> None:
    with Named(parrot, "polly") as env:
        assert isinstance(env, SyncEnvClient)
        assert env.say_twice("hi") == "polly: hi"
        assert env.name == "polly"
        other = env.new_session()
        assert isinstance(other, SyncEnvClient)
        other.step("x")
        assert (env.state(), other.state()) == (2, 1)
        env.disconnect()
        assert env.reset().observation == "ready"
        with pytest.raises(AttributeError):
            _ = env.nothing
    assert not other.is_open


async def test_a_blocking_call_in_a_running_loop_is_refused(parrot: str) -> None:
    client = GenericEnvClient(parrot).sync()
    with pytest.raises(SessionStateError, match=r"inside a running event loop.*async_client"):
        client.reset()
    await anyio.to_thread.run_sync(client.reset)
    await anyio.to_thread.run_sync(client.close)


def test_a_session_is_not_carried_to_another_loop(parrot: str) -> None:
    client = GenericEnvClient(parrot)
    asyncio.run(_reset(client))
    with pytest.raises(SessionLostError, match=r"ended with the event loop.*asyncio\.run"):
        asyncio.run(_reset(client))
    with GenericEnvClient(parrot).sync() as env:
        with pytest.raises(SessionStateError, match="opened on another event loop"):
            asyncio.run(_reset(env.async_client))
        env.reset()


async def _reset(client: GenericEnvClient) -> None:
    await client.reset()


def test_threads_and_tasks_on_one_client_never_mix_replies(parrot: str) -> None:
    with GenericEnvClient(parrot).sync() as env:
        answers: dict[str, str] = {}

        def say(text: str) -> None:
            for turn in range(20):
                answers[f"{text}{turn}"] = env.step({"text": f"{text}{turn}"}).observation["text"]

        threads = [threading.Thread(target=say, args=(text,)) for text in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == 80
    assert all(asked == told for asked, told in answers.items())


@pytest.mark.parametrize(
    ("given", "variable", "mode"),
    [
        (None, None, "simulation"),
        (None, "PRODUCTION", "production"),
        ("Simulation", "production", "simulation"),
        ("production", None, "production"),
    ],
)
def test_a_mode_is_an_argument_or_a_variable_and_stays(
    given: str | None, variable: str | None, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("OPENENV_CLIENT_MODE", variable)
    client = GenericEnvClient("http://h:1", mode=given)
    assert (client.mode, client._mode) == (mode, mode)
    with pytest.raises(AttributeError):
        client._mode = "production"  # type: ignore[misc]


def test_a_mode_that_there_is_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="mode is 'training'"):
        GenericEnvClient("http://h:1", mode="training")
    monkeypatch.setenv("OPENENV_CLIENT_MODE", "training")
    with pytest.raises(ConfigurationError, match="OPENENV_CLIENT_MODE"):
        GenericEnvClient("http://h:1")


async def test_a_session_that_ended_is_kept_by_nothing(parrot: str) -> None:
    def kept() -> int:
        gc.collect()
        return sum(type(each) in (AwaitedSocket, NativeLink) for each in gc.get_objects())

    before = kept()
    for _ in range(3):
        client = GenericEnvClient(parrot, message_timeout_s=600)
        await client.reset()
        await client.close()
        del client
    with anyio.fail_after(30):  # the sockets may still be closing; a timer of a call would fire only after ten minutes
        while kept() > before:  # noqa: ASYNC110 - what nothing keeps tells nobody
            await anyio.sleep(0.01)
