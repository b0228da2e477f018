"""Play the ported packages with their own clients and this Python's package: prints what was seen, as JSON.

Usage: ``python play_packages.py FOLDER '{"theirs": {"ported_echo": "http://…", …}, "ours": {…}}'``.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

sys.path.insert(0, sys.argv[1])


def play_tools(url: str) -> Any:
    package: Any = importlib.import_module("ported_echo")
    with package.EchoEnv(base_url=url).sync() as env:
        first = env.reset(episode_id="mine")
        values = [
            env.call_tool("echo_message", message="hello"),
            env.call_tool("echo_with_length", message="hello"),
            env.call_tool("echo_later", message="a", times=2),
        ]
        try:
            env.call_tool("refuse", reason="no")
        except Exception as error:
            values.append("Error calling tool 'refuse': no" in str(error))
        state = env.state()
        return [first.reward, first.done, first.observation.metadata, values, state.episode_id]


def play_grid(url: str) -> Any:
    package: Any = importlib.import_module("ported_grid")
    with package.GridEnv(base_url=url).sync() as env:
        seen = [env.reset(seed=7, size=5, episode_id="walk")]
        for move in ("down", "right", "right", "up", "down", "left"):
            seen.append(env.step(package.GridAction(move=move, strides=2 if move == "down" else 1)))
        try:
            env.step(package.GridAction.model_construct(move=package.Move.UP, strides=9))
        except Exception as error:
            refused = "VALIDATION_ERROR" in str(error) or type(error).__name__ == "ActionValidationError"
        else:
            refused = False
        return [[_fields(result) for result in seen], env.state().model_dump(), refused]


def play_text(url: str) -> Any:
    package: Any = importlib.import_module("ported_text")
    with package.TextEnv(base_url=url).sync() as env:
        seen = [env.reset(split="train", index=1, episode_id="t")]
        seen += [env.step(package.TextAction(message=word)) for word in ("boat", "home", "house")]
        return [[_fields(result) for result in seen], env.state().model_dump()]


def _fields(result: Any) -> Any:
    return [result.observation.model_dump(), result.reward, result.done]


PLAYS = {"ported_echo": play_tools, "ported_grid": play_grid, "ported_text": play_text}

seen = {
    server: {name: play(addresses[name]) for name, play in PLAYS.items()}
    for server, addresses in json.loads(sys.argv[2]).items()
}
print(json.dumps(seen))
