"""The client for environments with tools, at a server of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from openenv_trl.client import GenericEnvClient, GenericMCPObservation, MCPToolClient
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import (
    ConfigurationError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    SessionCapacityError,
    SessionLostError,
    ToolCallError,
)
from openenv_trl.server import create_app
from openenv_trl.types import Action, CallToolAction, ListToolsAction, Observation, State
from openenv_trl.wire.tools import CallToolObservation, ListToolsObservation

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("wire")]


class Ready(Observation):
    says: str = "ready"


class Desk(Environment[Action, Observation, State]):
    """Tools of all shapes. It counts its calls, so that one can see that a session has its own."""

    def __init__(self) -> None:
        self.calls = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Ready:
        self.calls = 0
        return Ready(metadata={"seed": seed})

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Ready(says="stepped")

    @property
    def state(self) -> State:
        return State(episode_id="e", step_count=self.calls)

    @tool
    def greet(self, name: str, tool_name: str = "", arguments: int = 0) -> str:
        """Greet."""
        self.calls += 1
        return f"hello {name} {tool_name} {arguments}".strip()

    @tool
    def untold(self) -> dict[str, int]:  # no docstring
        self.calls += 1
        return {"calls": self.calls}

    @tool
    def fail(self) -> str:
        """Fail."""
        raise RuntimeError("the ink is dry")


@pytest.fixture
def desk(serve: Callable[[Any], str]) -> str:
    return serve(create_app(Desk, Action, Observation))


async def test_tools_are_listed_with_and_without_a_description(desk: str) -> None:
    async with MCPToolClient(desk) as env:
        tools = {each.name: each for each in await env.list_tools()}
        assert set(tools) == {"greet", "untold", "fail"}
        assert (tools["greet"].description, tools["untold"].description) == ("Greet.", "")
        assert tools["greet"].input_schema["required"] == ["name"]
        assert await env.has_tool("untold")
        assert not await env.has_tool("fly")
        assert await env.get_tool("greet") == tools["greet"]
        assert await env.get_tool("fly") is None


async def test_a_tool_is_called_with_arguments_of_any_name(desk: str) -> None:
    async with MCPToolClient(desk) as env:
        assert await env.call_tool("greet", name="ann") == "hello ann  0"
        assert await env.call_tool("greet", name="ann", tool_name="bob", arguments=3) == "hello ann bob 3"
        assert await env.call_tool("greet", {"name": "cy"}, arguments=1) == "hello cy  1"
        assert await env.call_tool("untold") == {"calls": 4}
        assert (await env.state()).step_count == 4


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "words"),
    [
        ("fail", {}, "execution_error", "the ink is dry"),
        ("fly", {}, "tool_not_found", "Unknown tool: 'fly'"),
        ("greet", {}, "invalid_args", "name"),
        ("greet", {"name": "a", "arguments": "many"}, "invalid_args", "arguments"),
    ],
)
async def test_a_failed_call_says_whose_fault_it_was_and_ends_nothing(
    desk: str, name: str, arguments: dict[str, Any], kind: str, words: str
) -> None:
    async with MCPToolClient(desk) as env:
        with pytest.raises(ToolCallError, match=words) as caught:
            await env.call_tool(name, arguments)
        assert (caught.value.tool_name, caught.value.error_type) == (name, kind)
        assert isinstance(caught.value, RuntimeError)
        assert await env.call_tool("untold")


async def test_steps_give_typed_observations(desk: str) -> None:
    async with MCPToolClient(desk) as env:
        first = await env.reset(seed=3)
        assert isinstance(first.observation, GenericMCPObservation)
        assert first.observation.says == "ready"  # type: ignore[attr-defined]
        assert first.observation.metadata == {"seed": 3}
        result = await env.step(CallToolAction(tool_name="greet", arguments={"name": "ann"}))
        assert isinstance(result.observation, CallToolObservation)
        assert result.observation.error is None
        assert result.observation.result["data"] == "hello ann  0"
        assert (await env.step({"type": "call_tool", "tool_name": "untold"})).observation == CallToolObservation(
            tool_name="untold",
            result={**result.observation.result, "data": {"calls": 2}, "structured_content": {"calls": 2}, "meta": None}
            | {"content": [{"type": "text", "text": '{"calls":2}', "annotations": None, "meta": None}]},
        )
        with pytest.raises(ConfigurationError, match="not a int"):
            await env.step(5)


async def test_a_list_of_tools_is_an_observation_too(desk: str) -> None:
    async with MCPToolClient(desk) as env:
        result = await env.step(ListToolsAction())
        assert isinstance(result.observation, ListToolsObservation)
        assert len(result.observation.tools) == 3


async def test_a_killed_client_leaves_no_session(desk: str) -> None:
    for _ in range(4):
        env = await MCPToolClient(desk, wait_for_slot_s=60, wire="openenv").connect()
        await env.call_tool("untold")
        await env.step(CallToolAction(tool_name="untold"))
        _abort(env)
    async with MCPToolClient(desk, wait_for_slot_s=60) as env:
        assert await env.call_tool("untold") == {"calls": 1}
        with pytest.raises(SessionCapacityError):
            await MCPToolClient(desk).connect()


def _abort(env: MCPToolClient) -> None:
    """End the connection as the end of a process would."""
    link: Any = env._session._link
    link._socket.abort()


async def test_a_list_that_failed_is_an_error_and_not_kept(scripted: Callable[..., str]) -> None:
    answers = [
        '{"type":"mcp","data":{"jsonrpc":"2.0","id":"connect","result":{}}}',
        '{"type":"mcp","data":{"id":1,"error":{"code":-32603,"message":"the list burned"}}}',
        '{"type":"mcp","data":{"id":1,"result":{"tools":[{"name":"a","description":null,"inputSchema":null}]}}}',
        '{"type":"mcp","data":{"id":1,"result":{"tools":[]}}}',
    ]

    def play(connection: ServerConnection) -> None:
        for answer in answers:
            connection.recv()
            connection.send(answer)
        connection.recv()

    async with MCPToolClient(scripted(play)) as env:
        with pytest.raises(EnvironmentExecutionError, match="the list burned"):
            await env.list_tools()
        assert [each.name for each in await env.list_tools()] == ["a"]
        assert await env.has_tool("a")  # as it was told before
        assert await env.list_tools(use_cache=False) == []


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ('{"content":[],"structured_content":null,"data":null,"is_error":false}', None),
        ('{"content":[{"type":"text","text":"x"}]}', {"content": [{"type": "text", "text": "x"}]}),
        ('{"tool_name":"t","result":{"data":3},"error":null,"metadata":{}}', 3),
        ('{"tool_name":"t","result":"plain","error":null,"metadata":{}}', "plain"),
        ('{"content":[{"type":"text","text":"it broke"}],"is_error":true}', "execution_error): it broke"),
        ('{"content":[],"isError":true}', "execution_error): the tool gave no reason"),
        ('{"tool_name":"t","result":null,"error":{"error_type":"timeout","message":"30 s"}}', "timeout): 30 s"),
        ('{"tool_name":"t","result":null,"error":{"error_type":"rain","message":"wet"}}', "rain): wet"),
    ],
)
async def test_results_of_whatever_server_are_understood(scripted: Callable[..., str], result: str, value: Any) -> None:
    def play(connection: ServerConnection) -> None:
        connection.recv()
        connection.send('{"type":"mcp","data":{"jsonrpc":"2.0","id":"connect","result":{}}}')
        connection.recv()
        connection.send('{"type":"mcp","data":{"jsonrpc":"2.0","id":1,"result":' + result + "}}")
        connection.recv()

    async with MCPToolClient(scripted(play)) as env:
        if isinstance(value, str) and "): " in value:
            with pytest.raises(ToolCallError) as caught:
                await env.call_tool("t")
            assert value in str(caught.value)
        else:
            assert await env.call_tool("t") == value


async def test_a_call_without_a_result_in_time_ends_the_session(scripted: Callable[..., str]) -> None:
    def play(connection: ServerConnection) -> None:
        connection.recv()
        connection.send('{"type":"mcp","data":{"jsonrpc":"2.0","id":"connect","result":{}}}')
        connection.recv()
        connection.recv()

    async with MCPToolClient(scripted(play), message_timeout_s=2.0) as env:  # of which the opening takes some
        with pytest.raises(DeadlineExceededError, match="call_tool"):
            await env.call_tool("t")
        with pytest.raises(SessionLostError):
            await env.list_tools()


def test_the_blocking_client_has_the_same_calls(desk: str) -> None:
    with MCPToolClient(desk).sync() as env:
        assert len(env.list_tools()) == 3
        assert len(env.list_tools(use_cache=False)) == 3
        assert env.call_tool("greet", name="ann") == "hello ann  0"
        assert env.has_tool("greet")
        assert env.get_tool("fly") is None


def test_only_the_mode_with_tools_is_taken() -> None:
    assert MCPToolClient("http://h:1").mode == "production"
    with pytest.raises(ConfigurationError, match="GenericEnvClient"):
        MCPToolClient("http://h:1", mode="simulation")


async def test_new_sessions_have_tools_of_their_own(serve: Callable[[Any], str]) -> None:
    class Many(Desk):
        SUPPORTS_CONCURRENT_SESSIONS = True

    url = serve(create_app(Many, Action, Observation, max_concurrent_envs=2))
    async with MCPToolClient(url) as first:
        await first.call_tool("untold")
        second = await first.new_session()
        assert await second.call_tool("untold") == {"calls": 1}
        assert await first.call_tool("untold") == {"calls": 2}


async def test_a_generic_client_lists_tools_as_well(desk: str) -> None:
    async with GenericEnvClient(desk) as env:
        assert len(await env.list_tools()) == 3
