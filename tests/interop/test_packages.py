"""Packages written for the public package: the original served by it, the one with its import lines changed by ours.

The same messages bring the same replies; and each package's own client plays on either server and sees the same. One
thing is more on ours: where a rubric gave the reward, the observation's metadata say what each of its parts gave.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect


def _rpc(request_id: int, name: str, /, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"type": "mcp", "data": {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}}


def _step(**action: Any) -> dict[str, Any]:
    return {"type": "step", "data": action}


STATE = {"type": "state"}
MESSAGES: dict[str, list[dict[str, Any]]] = {
    "ported_echo": [
        {"type": "reset", "data": {"episode_id": "mine"}},
        _rpc(1, "echo_message", message="hi"),
        _rpc(2, "echo_with_length", message="hi"),
        _rpc(3, "echo_later", message="a", times=2),
        _step(type="list_tools"),
        _step(type="call_tool", tool_name="echo_message", arguments={"message": "hi"}),
        _step(type="call_tool", tool_name="echo_later", arguments={"message": "hi"}),
        _step(type="call_tool", tool_name="refuse", arguments={"reason": "no"}),
        _step(type="call_tool", tool_name="none", arguments={}),
        STATE,
    ],
    "ported_grid": [
        {"type": "reset", "data": {"seed": 7, "size": 5, "episode_id": "walk"}},
        *[_step(move=move) for move in ("down", "down", "right", "up", "left", "right")],
        _step(move="down", strides=3),
        _step(move="sideways", strides=9),
        {"type": "reset", "data": {"size": 1}},
        STATE,
    ],
    "ported_text": [
        {"type": "reset", "data": {"split": "train", "index": 1, "episode_id": "t"}},
        *[_step(message=word) for word in ("boat", "home", "house")],
        _step(message=""),
        STATE,
    ],
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_same_messages_bring_the_same_replies(name: str, addresses: Any) -> None:
    with contextlib.ExitStack() as stack:
        urls = [addresses[package][name].replace("http", "ws") + "/ws" for package in ("theirs", "ours")]
        theirs, ours = (stack.enter_context(connect(url, compression=None, open_timeout=60)) for url in urls)
        for message in MESSAGES[name]:
            answers = []
            for connection in (theirs, ours):
                connection.send(json.dumps(message))
                answers.append(json.loads(connection.recv(timeout=60)))
            if name == "ported_text":
                _take_out_the_rubrics_parts(answers[1])
            assert json.dumps(answers[1]) == json.dumps(answers[0]), message  # the order of fields too


def test_their_own_clients_see_the_same_on_either_server(
    addresses: Any, folders: dict[str, Path], run_script: Callable[..., subprocess.Popen[str]]
) -> None:
    running = {
        package: run_script(package, "play_packages.py", str(folder), json.dumps(addresses))
        for package, folder in folders.items()
    }
    seen = {package: json.loads(process.communicate(timeout=120)[0]) for package, process in running.items()}
    expected = seen["theirs"]["theirs"]
    assert set(expected) == set(MESSAGES)
    for client in ("theirs", "ours"):
        for server in ("theirs", "ours"):
            for name in MESSAGES:
                found = seen[client][server][name]
                if name == "ported_text" and server == "ours":
                    _take_out_the_rubrics_parts(found)
                assert found == expected[name], f"{name}: {client} client on {server} server"


def _take_out_the_rubrics_parts(content: Any) -> None:
    """Take the parts' scores out of all metadata in it, and metadata beside an observation that are empty then."""
    if isinstance(content, list):
        for each in content:
            _take_out_the_rubrics_parts(each)
    elif isinstance(content, dict):
        for each in content.values():
            _take_out_the_rubrics_parts(each)
        metadata = content.get("metadata")
        if isinstance(metadata, dict) and metadata.pop("rubric", None) and not metadata and "observation" in content:
            del content["metadata"]
