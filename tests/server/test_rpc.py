"""JSON-RPC about tools in the public package's dialect: over HTTP, its own socket, and beside the steps of ``/ws``.

The answers are those recorded against the public package 0.10.0, but that a request's id comes back with its error,
that a message which is no object ends no session, and that a description is never null.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pydantic
import pytest
from fastmcp import FastMCP
from websockets.exceptions import ConnectionClosed

from openenv_trl.environment import Environment
from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, CallToolAction, ListToolsAction, Observation, State, Tool
from openenv_trl.wire.tools import CallToolObservation, ListToolsObservation

Ask = Callable[[Any, str | bytes], str]
URL = f"https://errors.pydantic.dev/{'.'.join(pydantic.VERSION.split('.')[:2])}/v/"


class Counter(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp: Any = FastMCP("counter")
        self.count = 0

        @mcp.tool
        def add(a: int, b: int = 2) -> int:
            """Add two numbers."""
            return a + b

        @mcp.tool
        def greet(name: str) -> str:
            return f"hello {name}"

        @mcp.tool
        def fail(x: str) -> str:
            raise ValueError(f"tool exploded {x}")

        @mcp.tool
        def counter():  # type: ignore[no-untyped-def]
            self.count += 1
            return {"count": self.count}

        super().__init__(mcp)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation(metadata={"message": "ready"})

    @property
    def state(self) -> State:
        return State(episode_id="m2", step_count=self.count)


def _request(method: str, request_id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def _post(served: Any, body: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{served.url}/mcp", data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.status == 200
        return json.load(response)


def _call(served: Any, name: str, session_id: str | None = None, **arguments: Any) -> Any:
    named = {} if session_id is None else {"session_id": session_id}
    return _post(served, _request("tools/call", name=name, arguments=arguments, **named))


def _create(served: Any) -> str:
    return _post(served, _request("openenv/session/create"))["result"]["session_id"]


def _close(served: Any, session_id: Any) -> Any:
    return _post(served, _request("openenv/session/close", session_id=session_id))


@pytest.fixture
def served(serve: Callable[..., Any]) -> Any:
    return serve(create_app(Counter, CallToolAction, CallToolObservation, max_concurrent_envs=4))


COUNT_1 = {
    "content": [{"type": "text", "text": '{"count":1}', "annotations": None, "meta": None}],
    "structured_content": {"count": 1},
    "meta": None,
    "data": {"count": 1},
    "is_error": False,
}


def _error(code: int, message: str, data: Any = None, request_id: Any = 1) -> Any:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, "data": data}}


MISSING_METHOD = (
    "Invalid request: 2 validation errors for JsonRpcRequest\njsonrpc\n  Field required [type=missing, input_value={}, "
    f"input_type=dict]\n    For further information visit {URL}missing\nmethod\n  Field required [type=missing, "
    f"input_value={{}}, input_type=dict]\n    For further information visit {URL}missing"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{bad", _error(-32700, "Parse error", request_id=None)),
        (b"[]", _error(-32700, "Parse error", request_id=None)),
        (b"5", _error(-32700, "Parse error", request_id=None)),
        ({}, _error(-32600, MISSING_METHOD, request_id=None)),
        (_request("foo/bar"), _error(-32601, "Method not found: foo/bar")),
        (
            _request("notifications/initialized", None),
            _error(-32601, "Method not found: notifications/initialized", None, None),
        ),
        (_request("tools/call", arguments={"a": 1}), _error(-32602, "Missing 'name' in params")),
        (_request("tools/list", session_id="zzz"), _error(-32602, "Unknown session_id: zzz")),
        (_request("openenv/session/close"), _error(-32602, "Invalid params - 'session_id' is required")),
        (_request("openenv/session/close", session_id="zzz"), _error(-32602, "Unknown session_id: zzz")),
        (_request("tools/call", name="nope"), _error(-32603, "Unknown tool: 'nope'", {"error_type": "tool_not_found"})),
        (
            _request("tools/call", name="fail", arguments={"x": "1"}),
            _error(-32603, "Error calling tool 'fail': tool exploded 1", {"error_type": "execution_error"}),
        ),
        (
            _request("tools/call", name="add", arguments={"a": "x"}),
            _error(
                -32603,
                "1 validation error for call[add]\na\n  Input should be a valid integer, unable to parse string as an "
                f"integer [type=int_parsing, input_value='x', input_type=str]\n    For further information visit "
                f"{URL}int_parsing",
                {"error_type": "invalid_args"},
            ),
        ),
        (_request("tools/call", name="counter"), {"jsonrpc": "2.0", "id": 1, "result": COUNT_1}),
    ],
)
def test_a_request_over_http_has_the_recorded_response(served: Any, body: Any, expected: Any) -> None:
    assert _post(served, body) == expected


@pytest.mark.parametrize("wrong", [{"jsonrpc": "1.0"}, {"extra": 1}, {"params": [1]}])
def test_a_wrong_request_is_refused_under_its_own_id(served: Any, wrong: Any) -> None:
    response = _post(served, {**_request("tools/list", "mine"), **wrong})
    assert (response["id"], response["error"]["code"]) == ("mine", -32600)


def test_tools_are_listed_with_all_that_is_known_of_them(served: Any) -> None:
    tools = _post(served, _request("tools/list"))["result"]["tools"]
    assert [each["name"] for each in tools] == ["add", "greet", "fail", "counter"]
    assert [each["description"] for each in tools] == ["Add two numbers.", "", "", ""]
    assert tools[1] == {
        "name": "greet",
        "title": None,
        "description": "",
        "inputSchema": {
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "type": "object",
        },
        "outputSchema": {
            "properties": {"result": {"type": "string"}},
            "required": ["result"],
            "type": "object",
            "x-fastmcp-wrap-result": True,
        },
        "icons": None,
        "annotations": None,
        "meta": {"fastmcp": {"tags": []}},
        "execution": None,
    }


def test_a_call_that_names_no_session_has_an_environment_of_its_own(served: Any) -> None:
    assert [_call(served, "counter")["result"]["data"] for _ in range(2)] == [{"count": 1}] * 2


def test_a_session_keeps_its_environment_from_call_to_call(served: Any) -> None:
    first, second = _create(served), _create(served)
    assert [_call(served, "counter", first)["result"]["data"]["count"] for _ in range(3)] == [1, 2, 3]
    assert _call(served, "counter", second)["result"]["data"]["count"] == 1
    assert _close(served, first)["result"] == {"session_id": first, "closed": True}
    assert _call(served, "counter", first)["error"]["message"] == f"Unknown session_id: {first}"


def test_sessions_are_no_more_than_there_may_be(served: Any) -> None:
    sessions = [_create(served) for _ in range(4)]
    text = "Server at capacity: 4/4 sessions active. Cannot accept new connections."
    refused = _error(-32000, text, {"active_sessions": 4, "max_sessions": 4})
    assert _post(served, _request("openenv/session/create")) == refused
    _close(served, sessions[0])
    assert _create(served) not in sessions


def test_a_session_that_its_client_forgot_ends_by_itself(serve: Callable[..., Any]) -> None:
    settings = AppSettings(detached_timeout_s=0.05)
    served = serve(create_app(Counter, CallToolAction, CallToolObservation, settings=settings))
    forgotten = _create(served)
    ended = f"Unknown session_id: {forgotten}"
    deadline = time.monotonic() + 30
    while _call(served, "none", forgotten)["error"]["message"] != ended:
        assert time.monotonic() < deadline
        time.sleep(0.2)  # longer than the timeout: each call is a sign of life
    assert _create(served) != forgotten


def test_a_session_of_http_can_be_attached_to_a_socket(served: Any, ask: Ask) -> None:
    session_id = _create(served)
    _call(served, "counter", session_id)
    connection = served.socket(f"/ws?session_id={session_id}")
    assert json.loads(ask(connection, '{"type":"reset"}'))["data"]["metadata"] == {"message": "ready"}
    step = json.loads(ask(connection, '{"type":"step","data":{"tool_name":"counter"}}'))["data"]
    assert step["observation"]["result"]["data"] == {"count": 2}
    assert _call(served, "counter", session_id)["result"]["data"] == {"count": 3}
    second = served.socket(f"/ws?session_id={session_id}")
    refusal = json.loads(second.recv(timeout=30))["data"]
    assert refusal == {"message": f"Session {session_id} already has an attached WebSocket", "code": "SESSION_ERROR"}
    connection.close()
    assert _call(served, "counter", session_id)["result"]["data"] == {"count": 4}


class Gated(Counter):
    entered = threading.Event()
    opened = threading.Event()

    def __init__(self) -> None:
        super().__init__()

        @self.tool()
        def hold() -> int:
            self.entered.set()
            self.count += 10 if self.opened.wait(30) else 0
            return self.count


def test_a_call_over_http_waits_for_the_step_of_its_session(serve: Callable[..., Any], ask: Ask) -> None:
    Gated.opened.clear()
    served = serve(create_app(Gated, CallToolAction, CallToolObservation))
    session_id = _create(served)
    connection = served.socket(f"/ws?session_id={session_id}")
    ask(connection, '{"type":"reset"}')
    connection.send('{"type":"step","data":{"tool_name":"hold"}}')
    assert Gated.entered.wait(30)
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(_call, served, "counter", session_id)
        assert _post(served, _request("tools/list"))["result"]["tools"]  # beside it, others are answered
        assert not counted.done()
        Gated.opened.set()
        assert json.loads(connection.recv(timeout=30))["data"]["observation"]["result"]["data"] == 10
        assert counted.result(30)["result"]["data"] == {"count": 11}


def test_an_attached_session_is_closed_when_its_socket_is(served: Any, ask: Ask) -> None:
    session_id = _create(served)
    connection = served.socket(f"/ws?session_id={session_id}")
    ask(connection, '{"type":"state"}')
    assert _close(served, session_id)["result"] == {"session_id": session_id, "closed": False, "closing": True}
    assert json.loads(ask(connection, '{"type":"state"}'))["type"] == "state"
    connection.send('{"type":"close"}')
    with pytest.raises(ConnectionClosed):
        connection.recv(timeout=30)
    assert _call(served, "counter", session_id)["error"]["message"] == f"Unknown session_id: {session_id}"


def test_an_unknown_session_is_said_and_the_socket_closed(served: Any) -> None:
    connection = served.socket("/ws?session_id=nope")
    refusal = json.loads(connection.recv(timeout=30))["data"]
    assert refusal == {"message": "Unknown session_id: nope", "code": "SESSION_ERROR"}


def _framed(request: Any) -> str:
    return json.dumps({"type": "mcp", "data": request})


def test_calls_beside_steps_are_of_the_same_environment(served: Any, ask: Ask) -> None:
    connection = served.socket()
    ask(connection, '{"type":"step","data":{"type":"call_tool","tool_name":"counter"}}')
    response = json.loads(ask(connection, _framed(_request("tools/call", name="counter"))))["data"]
    assert response["result"]["data"] == {"count": 2}
    tools = json.loads(ask(connection, '{"type":"step","data":{"type":"list_tools"}}'))["data"]["observation"]["tools"]
    assert [each["description"] for each in tools] == ["Add two numbers.", "", "", ""]


@pytest.mark.parametrize("path", ["/ws", "/mcp"])
def test_a_socket_has_its_own_session_and_keeps_it(served: Any, ask: Ask, path: str) -> None:
    connection = served.socket(path)

    def answer(request: Any) -> Any:
        if path == "/mcp":
            return json.loads(ask(connection, json.dumps(request)))
        return json.loads(ask(connection, _framed(request)))["data"]

    session_id = answer(_request("openenv/session/create"))["result"]["session_id"]
    assert answer(_request("openenv/session/create"))["result"]["session_id"] == session_id
    refused = answer(_request("openenv/session/close", session_id=session_id))
    assert refused == _error(-32600, "Cannot close active WebSocket-managed session via MCP method")
    other = _create(served)
    assert answer(_request("openenv/session/close", session_id=other))["result"] == {
        "session_id": other,
        "closed": True,
    }
    assert _call(served, "counter", session_id)["result"]["data"] == {"count": 1}
    assert answer(_request("tools/call", name="counter"))["result"]["data"] == {"count": 2}


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        ("bad", -32700, "Parse error: Expecting value: line 1 column 1 (char 0)"),
        ("{}", -32600, MISSING_METHOD),
        ("[1]", -32600, "Invalid request: expected a JSON object, got an array"),
        ("null", -32600, "Invalid request: expected a JSON object, got null"),
        (
            b"{}",
            -32700,
            "Parse error: binary messages are not part of this protocol: send each request as a text message.",
        ),
    ],
)
def test_what_cannot_be_understood_ends_no_session(served: Any, ask: Ask, message: Any, code: int, text: str) -> None:
    connection = served.socket("/mcp")
    ask(connection, json.dumps(_request("tools/call", name="counter")))
    assert ask(connection, message) == json.dumps(_error(code, text, request_id=None))
    response = ask(connection, json.dumps(_request("tools/call", 5, name="counter")))
    assert json.loads(response)["result"]["data"] == {"count": 2}


def test_a_response_over_the_bare_socket_is_written_as_recorded(served: Any, ask: Ask) -> None:
    connection = served.socket("/mcp")
    assert ask(connection, json.dumps(_request("tools/call", 4, name="counter"))) == (
        '{"jsonrpc": "2.0", "id": 4, "result": {"content": [{"type": "text", "text": "{\\"count\\":1}", '
        '"annotations": null, "meta": null}], "structured_content": {"count": 1}, "meta": null, '
        '"data": {"count": 1}, "is_error": false}}'
    )


def test_a_bare_socket_without_a_free_slot_is_refused(serve: Callable[..., Any], ask: Ask) -> None:
    served = serve(create_app(Counter, CallToolAction, CallToolObservation))
    ask(served.socket(), '{"type":"reset"}')
    connection = served.socket("/mcp")
    text = "Server at capacity: 1/1 sessions active. Cannot accept new connections."
    refused = _error(-32000, text, {"active_sessions": 1, "max_sessions": 1}, None)
    assert connection.recv(timeout=30) == json.dumps(refused)
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000


def test_a_response_that_is_too_long_is_said_under_the_requests_id(serve: Callable[..., Any], ask: Ask) -> None:
    settings = AppSettings(max_message_bytes=2048)
    connection = serve(create_app(Counter, CallToolAction, CallToolObservation, settings=settings)).socket("/mcp")
    request = _request("tools/call", 8, name="greet", arguments={"name": "x" * 1500})
    error = json.loads(ask(connection, json.dumps(request)))
    assert (error["id"], error["error"]["code"]) == (8, -32603)
    assert "2048" in error["error"]["message"]
    assert json.loads(ask(connection, json.dumps(_request("tools/call", name="counter"))))["result"]


class Plain(Environment[Action, Observation, State]):
    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_an_environment_without_tools_does_not_support_them(serve: Callable[..., Any], method: str) -> None:
    served = serve(create_app(Plain, Action, Observation))
    response = _post(served, _request(method, name="x"))
    assert response == _error(-32603, "Environment does not support MCP")


def test_an_environment_may_take_the_actions_about_tools_by_its_own_step(serve: Callable[..., Any]) -> None:
    class ByHand(Plain):
        def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
            if isinstance(action, ListToolsAction):
                return ListToolsObservation(tools=[Tool(name="look")])
            return CallToolObservation(tool_name=action.tool_name, result=action.arguments)

    served = serve(create_app(ByHand, CallToolAction, CallToolObservation))
    assert _post(served, _request("tools/list"))["result"]["tools"][0]["name"] == "look"
    assert _call(served, "look", far=True)["result"]["result"] == {"far": True}
