"""Environments whose agents act by tools, over steps and over JSON-RPC."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import Field

from openenv_trl.environment import Environment, tool
from openenv_trl.server import create_app
from openenv_trl.types import Action, CallToolAction, Observation, State

Ask = Callable[[Any, str], str]


class Table(Observation):
    cards: list[int] = Field(default_factory=list)


class Game(Environment[Action, Table, State]):
    def __init__(self) -> None:
        self.cards: list[int] = []

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Table:
        self.cards = []
        return Table()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Table:
        return Table(cards=[99])

    @property
    def state(self) -> State:
        return State(step_count=len(self.cards))

    @tool
    def draw(self, value: int, times: int = 1) -> Table:
        """Draw a card."""
        self.cards += [value] * times
        return Table(cards=self.cards, reward=1.0, done=len(self.cards) > 2)

    @tool
    async def peek(self) -> dict[str, int]:
        return {"count": len(self.cards)}

    @tool
    def break_down(self) -> Table:
        raise OSError("the table collapsed")

    @tool
    def riddle(self) -> Any:
        return object()


def _call(name: str, **arguments: Any) -> str:
    return json.dumps({"type": "step", "data": {"type": "call_tool", "tool_name": name, "arguments": arguments}})


def _rpc(method: str, **params: Any) -> str:
    data = {"jsonrpc": "2.0", "id": 9, "method": method, "params": params}
    return json.dumps({"type": "mcp", "data": data})


@pytest.fixture
def connection(serve: Callable[..., Any]) -> Any:
    return serve(create_app(Game, Action, Table)).socket()


def test_a_tools_observation_is_the_steps(connection: Any, ask: Ask) -> None:
    assert ask(connection, _call("draw", value=7, times=3)) == (
        '{"type":"observation","data":{"observation":{"metadata":{},"cards":[7,7,7]},"reward":1.0,"done":true}}'
    )


def test_a_tools_other_value_is_a_tool_observation(connection: Any, ask: Ask) -> None:
    assert ask(connection, _call("peek")) == (
        '{"type":"observation","data":{"observation":{"metadata":{},"tool_name":"peek","result":{"content":[{"type":"text",'
        '"text":"{\\"count\\":0}","annotations":null,"meta":null}],"structured_content":{"count":0},"meta":null,'
        '"data":{"count":0},"is_error":false},"error":null},"reward":null,"done":false}}'
    )


@pytest.mark.parametrize(
    ("message", "text", "location"),
    [
        (_call("fold"), "Unknown tool: 'fold'. This environment has: draw, peek, break_down, riddle.", ["tool_name"]),
        (_call("draw"), "Wrong arguments for the tool 'draw': value: Field required", ["value"]),
        (_call("draw", value="x"), "Wrong arguments for the tool 'draw': value: Input should be a valid", ["value"]),
        (_call("draw", value=1, bet=2), "Wrong arguments for the tool 'draw': bet: Extra inputs", ["bet"]),
        ('{"type":"step","data":{"type":"call_tool"}}', "Invalid message", ["tool_name"]),
        ('{"type":"step","data":{"type":"call_tool","tool_name":"draw","arguments":[]}}', "Invalid", ["arguments"]),
    ],
)
def test_a_wrong_call_names_what_is_wrong_and_moves_nothing(
    connection: Any, ask: Ask, message: str, text: str, location: list[str]
) -> None:
    data = json.loads(ask(connection, message))["data"]
    assert data["code"] == "VALIDATION_ERROR"
    assert data["message"].startswith(text)
    assert [error["loc"] for error in data["errors"]] == [location]
    assert json.loads(ask(connection, '{"type":"state"}'))["data"]["step_count"] == 0


def test_a_tool_that_raises_is_the_environments_fault(connection: Any, ask: Ask) -> None:
    data = json.loads(ask(connection, _call("break_down")))["data"]
    assert data == {"message": "the table collapsed", "code": "EXECUTION_ERROR"}


def test_a_tools_value_that_cannot_be_sent_says_that_the_tool_ran(connection: Any, ask: Ask) -> None:
    data = json.loads(ask(connection, _call("riddle")))["data"]
    assert data["code"] == "EXECUTION_ERROR"
    assert "The tool 'riddle' was called, but its result cannot be sent" in data["message"]
    error = json.loads(ask(connection, _rpc("tools/call", name="riddle")))["data"]["error"]
    assert error["code"] == -32603


def test_a_step_without_a_tool_call_is_an_action(connection: Any, ask: Ask) -> None:
    answer = json.loads(ask(connection, '{"type":"step","data":{}}'))
    assert answer["data"]["observation"]["cards"] == [99]


def test_a_tool_list_is_an_observation_too(connection: Any, ask: Ask) -> None:
    answer = json.loads(ask(connection, '{"type":"step","data":{"type":"list_tools"}}'))["data"]
    assert [each["name"] for each in answer["observation"]["tools"]] == ["draw", "peek", "break_down", "riddle"]
    assert set(answer["observation"]["tools"][0]) == {"name", "description", "input_schema"}


def test_the_type_may_be_left_out_where_all_actions_are_tool_calls(serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(Game, CallToolAction, Table)).socket()
    answer = json.loads(ask(connection, '{"type":"step","data":{"tool_name":"draw","arguments":{"value":5}}}'))
    assert answer["data"]["observation"]["cards"] == [5]


def test_tools_are_listed_over_json_rpc(connection: Any, ask: Ask) -> None:
    answer = json.loads(ask(connection, _rpc("tools/list")))["data"]
    first = answer["result"]["tools"][0]
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 9)
    assert (first["name"], first["description"]) == ("draw", "Draw a card.")
    assert first["inputSchema"]["required"] == ["value"]
    assert first["inputSchema"]["additionalProperties"] is False


def test_tools_are_called_over_json_rpc_on_the_sessions_environment(connection: Any, ask: Ask) -> None:
    ask(connection, _call("draw", value=3))
    result = json.loads(ask(connection, _rpc("tools/call", name="draw", arguments={"value": 4})))["data"]["result"]
    assert result["data"] == {"cards": [3, 4]}
    assert json.loads(ask(connection, '{"type":"state"}'))["data"]["step_count"] == 2


@pytest.mark.parametrize(
    ("params", "code", "text", "kind"),
    [
        ({}, -32602, "Missing 'name' in params", None),
        ({"name": "draw", "arguments": [1]}, -32602, "'arguments' in params must be an object", None),
        ({"name": "fold"}, -32603, "Unknown tool: 'fold'", "tool_not_found"),
        ({"name": "draw", "arguments": {}}, -32603, "Wrong arguments for the tool 'draw'", "invalid_args"),
        ({"name": "break_down"}, -32603, "Error calling tool 'break_down': the table collapsed", "execution_error"),
    ],
)
def test_a_wrong_json_rpc_call_has_its_code(
    connection: Any, ask: Ask, params: dict[str, Any], code: int, text: str, kind: str | None
) -> None:
    error = json.loads(ask(connection, _rpc("tools/call", **params)))["data"]["error"]
    assert error["code"] == code
    assert error["message"].startswith(text)
    assert error["data"] == (None if kind is None else {"error_type": kind})
