"""The same HTTP requests to both packages' servers: the same status, type and body come back.

Where ours differ on purpose, `DIFFERENT` says how, and why.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx
import pytest

from openenv_trl.client import fetch_health, fetch_metadata, fetch_schema


class Ask(NamedTuple):
    environment: str
    method: str
    path: str
    body: Any = None  # text is sent as it is


class Answer(NamedTuple):
    status: int
    kind: str
    body: Any


def _tool(method: str, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _step(action: Any, **beside: Any) -> dict[str, Any]:
    return {"action": action, **beside}


ASKS = [
    Ask("probe", "GET", "/health"),
    Ask("probe", "GET", "/metadata"),
    Ask("desk", "GET", "/metadata"),
    Ask("production", "GET", "/metadata"),
    Ask("probe", "GET", "/state"),
    Ask("probe", "POST", "/reset"),
    Ask("probe", "POST", "/reset", {}),
    Ask("probe", "POST", "/reset", {"seed": 3, "level": 2, "bogus": 1}),
    Ask("probe", "POST", "/reset", {"seed": None}),
    Ask("probe", "POST", "/reset", {"seed": -1}),
    Ask("probe", "POST", "/reset", {"seed": "x"}),
    Ask("probe", "POST", "/reset", {"episode_id": "e" * 256}),
    Ask("probe", "POST", "/reset", []),
    Ask("probe", "POST", "/reset", "{nope"),
    Ask("async_probe", "POST", "/reset", {"seed": 1, "foo": 2}),
    Ask("async_probe", "POST", "/step", _step({"message": "x"})),
    Ask("probe", "POST", "/step", _step({"message": "hi", "n": 2})),
    Ask("probe", "POST", "/step", _step({"message": "meta"}, timeout_s=5, request_id="r", x=1)),
    Ask("probe", "POST", "/step", _step({"message": "boolreward"})),
    Ask("probe", "POST", "/step", _step({"message": "end"})),
    Ask("probe", "POST", "/step", _step({"message": ""})),
    Ask("probe", "POST", "/step", _step({"message": "a", "z": 1})),
    Ask("probe", "POST", "/step", _step(5)),
    Ask("probe", "POST", "/step", {}),
    Ask("probe", "POST", "/step", _step({"message": "a"}, timeout_s=0)),
    Ask("probe", "GET", "/step"),
    Ask("probe", "GET", "/nothing"),
    Ask("probe", "GET", "/ws"),
    Ask("production", "POST", "/reset", {}),
    Ask("production", "POST", "/step", _step({"message": "a"})),
    Ask("production", "GET", "/state"),
    Ask("production", "GET", "/health"),
    Ask("probe", "GET", "/list_environments"),
    Ask("probe", "GET", "/probe/splits"),
    Ask("probe", "GET", "/PROBE/splits"),
    Ask("probe", "GET", "/other/splits"),
    Ask("desk", "GET", "/desk/splits"),
    Ask("probe", "POST", "/probe/tasks", {"split": "train"}),
    Ask("probe", "POST", "/probe/tasks", {"split": "train", "x": 1}),
    Ask("probe", "POST", "/probe/num_tasks", {"split": "train"}),
    Ask("probe", "POST", "/probe/task", {"split": "train", "index": 1}),
    Ask("probe", "POST", "/probe/task", {"split": "train", "index": 9}),
    Ask("probe", "POST", "/probe/task", {"split": "train"}),
    Ask("probe", "POST", "/probe/task_range", {"split": "train", "start": 0, "stop": 2}),
    Ask("desk", "POST", "/mcp", {}),
    Ask("desk", "POST", "/mcp", "{nope"),
    Ask("desk", "POST", "/mcp", []),
    Ask("desk", "POST", "/mcp", _tool("tools/call", name="add", arguments={"a": 1, "b": 2})),
    Ask("desk", "POST", "/mcp", _tool("foo")),
    Ask("desk", "POST", "/mcp", _tool("openenv/session/close")),
    Ask("desk", "POST", "/mcp", _tool("openenv/session/close", session_id="nope")),
    Ask("desk", "POST", "/mcp", _tool("tools/list", session_id="nope")),
    Ask("desk", "GET", "/mcp"),
    Ask("probe", "POST", "/mcp", _tool("tools/list")),
    Ask("production", "POST", "/mcp", {}),
    Ask("production", "GET", "/list_environments"),
]

STRUCTURED = "an error says what happened, as JSON, and the connection stays"
LOST_REWARD = "a reward that JSON has not is not lost in silence"
WHOSE_FAULT = "a client is told by kind whose fault it was, not by words to be guessed from"
DIFFERENT: list[tuple[Ask, str, Answer]] = [
    (
        Ask("probe", "POST", "/step", _step({"message": "nan"})),
        LOST_REWARD,
        Answer(
            200,
            "application/json",
            {
                "observation": {"metadata": {"reward_not_finite": "nan"}, "echoed": "nan", "n": 0},
                "reward": None,
                "done": False,
                "metadata": {"reward_not_finite": "nan"},
            },
        ),
    ),
    (
        Ask("probe", "POST", "/step", _step({"message": "boom"})),
        STRUCTURED,
        Answer(500, "application/json", {"detail": "kaboom"}),
    ),
    (
        Ask("bad_factory", "POST", "/reset", {}),
        STRUCTURED,
        Answer(500, "application/json", {"detail": "Environment factory 'BadFactory' failed to create instance."}),
    ),
    (
        Ask("desk", "POST", "/mcp", _tool("tools/call", name="fly")),
        WHOSE_FAULT,
        Answer(
            200,
            "application/json",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "error": {"code": -32603, "message": "Unknown tool: 'fly'", "data": {"error_type": "tool_not_found"}},
            },
        ),
    ),
]


def _name(ask: Ask) -> str:
    return f"{ask.method} {ask.environment}{ask.path} {'' if ask.body is None else json.dumps(ask.body)[:60]}".strip()


@pytest.mark.parametrize("ask", ASKS, ids=map(_name, ASKS))
def test_requests_are_answered_alike(ask: Ask, addresses: Any) -> None:
    assert _answer(addresses["ours"], ask) == _answer(addresses["theirs"], ask)


@pytest.mark.parametrize(("ask", "because", "ours"), DIFFERENT, ids=[_name(each[0]) for each in DIFFERENT])
def test_differences_are_those_that_were_meant(ask: Ask, because: str, ours: Answer, addresses: Any) -> None:
    assert because
    assert _answer(addresses["ours"], ask) == ours
    assert _answer(addresses["theirs"], ask) != ours, "it is a difference no more: it belongs to the others"


@pytest.mark.parametrize("environment", ["probe", "production", "desk"])
def test_schemas_are_alike_but_for_their_descriptions(environment: str, addresses: Any) -> None:
    ours, theirs = (_answer(addresses[package], Ask(environment, "GET", "/schema")) for package in ("ours", "theirs"))
    assert ours.status == theirs.status == 200
    expected = _without_descriptions(theirs.body)
    if environment == "desk":
        # Our clients also take kinds of failure that only another server's tools know of.
        kinds = {"anyOf": [{"$ref": "#/$defs/ToolErrorType"}, {"type": "string"}], "title": "Error Type"}
        for shown in ("observation", "reset_observation"):
            expected[shown]["$defs"]["ToolError"]["properties"]["error_type"] = kinds
    assert _without_descriptions(ours.body) == expected


def test_a_session_over_http_is_the_same_on_both(addresses: Any) -> None:
    """Create a session, call its tools, attach a socket's worth of state, and close it."""
    talks: dict[str, list[Any]] = {}
    for package in ("theirs", "ours"):
        with httpx.Client(base_url=addresses[package]["desk"], timeout=60) as http:

            def ask(method: str, /, http: httpx.Client = http, **params: Any) -> dict[str, Any]:
                return http.post("/mcp", json=_tool(method, **params)).json()

            session_id = ask("openenv/session/create")["result"]["session_id"]
            counts = [ask("tools/call", name="count", session_id=session_id)["result"]["data"] for _ in range(2)]
            alone = ask("tools/call", name="count")["result"]["data"]
            closed = ask("openenv/session/close", session_id=session_id)["result"].get("closed")
            after = ask("tools/call", name="count", session_id=session_id)["error"]["code"]
            talks[package] = [counts, alone, closed, after]
    assert talks["ours"] == talks["theirs"] == [[{"calls": 1}, {"calls": 2}], {"calls": 1}, True, -32602]


@pytest.mark.anyio
@pytest.mark.parametrize("server", ["theirs", "ours"])
async def test_our_inquiries_understand_both(server: str, addresses: Any) -> None:
    url = addresses[server]["probe"]
    assert await fetch_health(url) == {"status": "healthy"}
    assert (await fetch_metadata(url))["name"] == "Probe"
    assert "message" in (await fetch_schema(url))["action"]["properties"]


def _answer(servers: dict[str, str], ask: Ask) -> Answer:
    body: dict[str, Any] = {}
    if isinstance(ask.body, str):
        body = {"content": ask.body, "headers": {"Content-Type": "application/json"}}
    elif ask.body is not None:
        body = {"json": ask.body}
    answer = httpx.request(ask.method, f"{servers[ask.environment]}{ask.path}", timeout=60, **body)
    kind = answer.headers.get("Content-Type", "")
    text = re.sub(r"errors\.pydantic\.dev/2\.\d+/", "errors.pydantic.dev/2/", answer.text)
    return Answer(answer.status_code, kind, json.loads(text) if kind == "application/json" else text)


def _without_descriptions(schema: Any) -> Any:
    if isinstance(schema, dict):
        # A property may be called "description" as well: that one is a schema, not a text.
        return {k: _without_descriptions(v) for k, v in schema.items() if k != "description" or isinstance(v, dict)}
    return [_without_descriptions(each) for each in schema] if isinstance(schema, list) else schema
