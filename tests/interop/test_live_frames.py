"""The same messages to both packages' servers, at the same time: the same frames come back, byte for byte.

Where ours differ on purpose, `recorded_frames.json` (beside the server's tests) or the table here says how, and why.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

RECORDED = Path(__file__).parents[1] / "server" / "recorded_frames.json"
CASES: list[dict[str, Any]] = json.loads(RECORDED.read_text())

Change = tuple[tuple[Any, ...], Any]
BLAME = ("data", "error", "data")
NO_DESCRIPTION = "a tool without a description must not cost the public client its whole list"
WHOSE_FAULT = "a client is told by kind whose fault it was, not by words to be guessed from"


def _call(request_id: int, name: str, /, **arguments: Any) -> dict[str, Any]:
    return _rpc(request_id, "tools/call", name=name, arguments=arguments)


def _rpc(request_id: int, method: str, /, **params: Any) -> dict[str, Any]:
    return {"type": "mcp", "data": {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}}


def _tool_step(**action: Any) -> dict[str, Any]:
    return {"type": "step", "data": action}


TOOL_MESSAGES: list[tuple[dict[str, Any], str, list[Change]]] = [
    ({"type": "reset", "data": {"seed": 1, "episode_id": "E"}}, "", []),
    (_rpc(1, "tools/list"), NO_DESCRIPTION, [(("data", "result", "tools", 2, "description"), "")]),
    (_call(2, "add", a=1, b=2), "", []),
    (_call(3, "count"), "", []),
    (_call(4, "greet", name="x"), "", []),
    (_call(5, "fly"), WHOSE_FAULT, [(BLAME, {"error_type": "tool_not_found"})]),
    (_call(6, "fail"), WHOSE_FAULT, [(BLAME, {"error_type": "execution_error"})]),
    (_call(7, "add", a="x", b=2), WHOSE_FAULT, [(BLAME, {"error_type": "invalid_args"})]),
    (_call(8, "add", a=1), WHOSE_FAULT, [(BLAME, {"error_type": "invalid_args"})]),
    (_rpc(9, "tools/call"), "", []),
    (_rpc(10, "initialize"), "", []),
    ({"type": "mcp", "data": {"jsonrpc": "2.0", "method": "ping"}}, "", []),
    (_tool_step(type="list_tools"), "", []),
    (_tool_step(type="call_tool", tool_name="add", arguments={"a": 1, "b": 2}), "", []),
    (_tool_step(tool_name="count"), "", []),
    (_tool_step(type="call_tool", tool_name="fly", arguments={}), "", []),
    (_tool_step(type="call_tool", tool_name="fail", arguments={}), "", []),
    (
        _tool_step(type="call_tool", tool_name="add", arguments={"a": "x", "b": 2}),
        WHOSE_FAULT,
        [(("data", "observation", "error", "error_type"), "invalid_args")],
    ),
    (_tool_step(type="call_tool"), "", []),
    (_tool_step(type="other"), "", []),
    ({"type": "state"}, "", []),
]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_recorded_messages_are_answered_alike(case: dict[str, Any], addresses: Any) -> None:
    with _both(addresses, case["environment"]) as (theirs, ours):
        for exchange in case["exchanges"]:
            message = exchange["binary"].encode("latin-1") if "binary" in exchange else exchange.get("text")
            if message is None:
                message = json.dumps(exchange["json"])
            their_answer, our_answer = _answer(theirs, message), _answer(ours, message)
            if "ours" not in exchange:
                assert our_answer == their_answer, exchange
                continue
            assert exchange["because"]
            assert our_answer != their_answer, "it is a difference no more: take it out of the list"


def test_messages_about_tools_are_answered_alike(addresses: Any) -> None:
    with _both(addresses, "desk") as (theirs, ours):
        for message, because, changes in TOOL_MESSAGES:
            their_answer, our_answer = _answer(theirs, json.dumps(message)), _answer(ours, json.dumps(message))
            assert bool(because) == bool(changes)
            assert our_answer == _changed(their_answer, changes), message


def test_pipelined_messages_are_answered_in_their_turn_by_both(addresses: Any) -> None:
    messages = [{"type": "step", "data": {"message": "m", "n": n}} for n in range(20)] + [{"type": "state"}]
    with _both(addresses, "probe") as (theirs, ours):
        for connection in (theirs, ours):
            for message in messages:
                connection.send(json.dumps(message))
        assert [ours.recv(timeout=60) for _ in messages] == [theirs.recv(timeout=60) for _ in messages]


@pytest.mark.parametrize("environment", ["desk", "probe"])
def test_the_socket_for_tools_alone_answers_alike(addresses: Any, environment: str) -> None:
    messages = [message["data"] for message, because, _ in TOOL_MESSAGES if message["type"] == "mcp" and not because]
    with _both(addresses, environment, "/mcp") as (theirs, ours):
        for message in [*map(json.dumps, messages), "{nope"]:
            assert json.loads(_answer(ours, message)) == json.loads(_answer(theirs, message)), message


@contextlib.contextmanager
def _both(addresses: Any, environment: str, path: str = "/ws") -> Iterator[list[ClientConnection]]:
    with contextlib.ExitStack() as stack:
        urls = [addresses[package][environment].replace("http", "ws") + path for package in ("theirs", "ours")]
        yield [stack.enter_context(connect(url, compression=None, open_timeout=60)) for url in urls]


def _answer(connection: ClientConnection, message: str | bytes) -> str:
    with contextlib.suppress(ConnectionClosed):  # refused already; the refusal waits to be read
        connection.send(message)
    try:
        answer = connection.recv(timeout=60)
    except ConnectionClosed as closed:
        return f"CLOSED {closed.rcvd.code if closed.rcvd else closed}"
    assert isinstance(answer, str)
    return re.sub(r"errors\.pydantic\.dev/2\.\d+/", "errors.pydantic.dev/2/", answer)  # each has its own pydantic


def _changed(frame: str, changes: list[Change]) -> str:
    if not changes:
        return frame
    content = json.loads(frame)
    for path, value in changes:
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        assert inner[path[-1]] != value, "it is a difference no more: take it out of the table"
        inner[path[-1]] = value
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
