from __future__ import annotations

from typing import Any

import pytest

from openenv_trl.types import Observation, Tool
from openenv_trl.wire.rpc import (
    RpcFailure,
    RpcRequest,
    parse_rpc,
    parse_rpc_response,
    rpc_error,
    rpc_request,
    rpc_result,
)
from openenv_trl.wire.tools import (
    CallToolObservation,
    mcp_result,
    mcp_tool,
    observation_of_tool,
    tool_of_mcp,
    tool_result,
)


def test_a_request_arrives_as_it_was_sent() -> None:
    assert parse_rpc(rpc_request(3, "tools/list", {"a": 1})) == RpcRequest("tools/list", {"a": 1}, 3)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"jsonrpc": "1.0", "method": "x", "id": 7},
        {"jsonrpc": "2.0", "method": "x", "id": 7, "extra": 1},
        {"jsonrpc": "2.0", "method": "tools/list", "id": 7, "params": [1]},
    ],
)
def test_a_bad_request_is_refused_under_its_own_id(data: dict[str, Any]) -> None:
    refused = parse_rpc(data)
    assert isinstance(refused, dict)
    assert refused["id"] == data.get("id")
    assert refused["error"]["code"] == -32600
    assert refused["error"]["message"].startswith("Invalid request: ")
    assert refused["error"]["data"] is None


@pytest.mark.parametrize("wrong_id", [[1], {"a": 1}, True, 1.5])
def test_an_id_of_a_wrong_type_is_not_echoed(wrong_id: Any) -> None:
    refused = parse_rpc({"id": wrong_id})
    assert isinstance(refused, dict)
    assert refused["id"] is None


def test_a_response_is_a_result_or_a_failure() -> None:
    assert parse_rpc_response(rpc_result(1, {"tools": []})) == {"tools": []}
    assert parse_rpc_response(rpc_error(1, -32603, "no")) == RpcFailure(-32603, "no")  # type: ignore[arg-type]


def test_a_tool_without_description_survives_the_way() -> None:
    tool = Tool(name="hit", input_schema={"type": "object", "properties": {}})
    assert mcp_tool(tool)["description"] == ""
    assert tool_of_mcp(mcp_tool(tool)) == tool


@pytest.mark.parametrize(
    ("value", "text", "structured", "meta"),
    [
        (3, "3", {"result": 3}, {"fastmcp": {"wrap_result": True}}),
        ("three", "three", {"result": "three"}, {"fastmcp": {"wrap_result": True}}),
        ({"count": 1}, '{"count":1}', {"count": 1}, None),
        ([1, 2], "[1,2]", {"result": [1, 2]}, {"fastmcp": {"wrap_result": True}}),
    ],
)
def test_a_tools_value_has_the_shape_of_a_tool_result(value: Any, text: str, structured: Any, meta: Any) -> None:
    assert tool_result(value) == {
        "content": [{"type": "text", "text": text, "annotations": None, "meta": None}],
        "structured_content": structured,
        "meta": meta,
        "data": value,
        "is_error": False,
    }


def test_a_tools_observation_is_used_as_it_is() -> None:
    observation = Observation(reward=1.0, done=True)
    assert observation_of_tool("hit", observation) is observation
    wrapped = observation_of_tool("add", 3)
    assert isinstance(wrapped, CallToolObservation)
    assert (wrapped.tool_name, wrapped.result["data"], wrapped.error) == ("add", 3, None)


def test_reward_and_done_are_not_shown_to_a_tools_caller() -> None:
    class Card(Observation):
        card: int = 7

    assert mcp_result(Card(reward=1.0, done=True))["data"] == {"card": 7}
