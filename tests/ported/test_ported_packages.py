"""An environment package that was written for the public package runs here with its import lines changed, and no other.

Three shapes: tools of an MCP server, typed actions, a text game with asynchronous hooks, rubric, transform and tasks.
Each is served by a process of its own and played by its own client.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from openenv_trl.errors import ActionValidationError, EnvironmentExecutionError

pytestmark = pytest.mark.anyio

NAMES = ("ported_echo", "ported_grid", "ported_text")


@pytest.mark.parametrize("name", NAMES)
def test_only_import_lines_are_changed(name: str, import_lines: ModuleType, packages: Path) -> None:
    changed = import_lines.changed_lines(name, packages / name)
    assert changed
    for before, after in changed:
        kept = re.fullmatch(r"from openenv\.core((?:\.\w+)*) (import .*)", before)
        assert kept is not None
        assert after == f"from openenv_trl.compat{kept[1]} {kept[2]}"


def test_the_readmes_command_is_this_rule(import_lines: ModuleType, packages: Path, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    command = re.search(r"^find my_env .*$", readme, re.M)
    assert command is not None
    for name in NAMES:
        shutil.copytree(import_lines.PACKAGES / name, tmp_path / "my_env", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["sh", "-c", command[0]], cwd=tmp_path, check=True)
        by_command = {path.relative_to(tmp_path / "my_env"): path.read_text() for path in _modules(tmp_path / "my_env")}
        assert by_command == {path.relative_to(packages / name): path.read_text() for path in _modules(packages / name)}
        shutil.rmtree(tmp_path / "my_env")


def _modules(folder: Path) -> list[Path]:
    return [*folder.rglob("*.py")]


def _ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=60) as response:
        return json.load(response)


async def test_tools(serve: Callable[[str], str]) -> None:
    package: Any = importlib.import_module("ported_echo")
    async with package.EchoEnv(base_url=serve("ported_echo")) as client:
        tools = {each.name: each.description for each in await client.list_tools()}
        assert tools == {
            "echo_message": "Say a message back.",
            "echo_with_length": "Say a message back, with its length.",
            "echo_later": "",
            "refuse": "Raise an error.",
        }
        reset = await client.reset(episode_id="mine")
        assert (reset.reward, reset.done) == (0.0, False)
        assert await client.call_tool("echo_message", message="hello") == "hello"
        assert await client.call_tool("echo_with_length", message="hello") == {"message": "hello", "length": 5}
        assert await client.call_tool("echo_later", message="a", times=2) == ["a", "a"]
        with pytest.raises(Exception, match="Error calling tool 'refuse': no"):
            await client.call_tool("refuse", reason="no")


async def test_tools_by_steps_are_counted(serve: Callable[[str], str]) -> None:
    from openenv_trl import CallToolAction, ListToolsAction

    package: Any = importlib.import_module("ported_echo")
    async with package.EchoEnv(base_url=serve("ported_echo")) as client:
        await client.reset(episode_id="mine")
        listed = await client.step(ListToolsAction())
        assert len(listed.observation.tools) == 4
        for name, arguments, data in (
            ("echo_message", {"message": "hi"}, "hi"),
            ("echo_later", {"message": "a"}, ["a"]),
        ):
            result = await client.step(CallToolAction(tool_name=name, arguments=arguments))
            assert result.observation.result["data"] == data
            assert (result.reward, result.done) == (None, False)
        missing = await client.step(CallToolAction(tool_name="none"))
        assert missing.observation.error.error_type == "tool_not_found"
        state = await client.state()
        assert (state.episode_id, state.step_count) == ("mine", 4)


async def test_typed_actions(serve: Callable[[str], str]) -> None:
    package: Any = importlib.import_module("ported_grid")
    address = serve("ported_grid")
    async with package.GridEnv(base_url=address) as client:
        first = await client.reset(seed=7, size=5, episode_id="walk")
        again = await client.reset(seed=7, size=5, episode_id="walk")
        assert first == again
        result = first
        while not result.done:
            (row, column), (goal_row, goal_column) = result.observation.position, result.observation.goal
            if row != goal_row:
                move = package.Move.DOWN if row < goal_row else package.Move.UP
            else:
                move = package.Move.RIGHT if column < goal_column else package.Move.LEFT
            result = await client.step(package.GridAction(move=move))
        assert (result.reward, result.observation.message) == (1.0, "There.")
        state = await client.state()
        assert (state.episode_id, state.size, state.step_count) == ("walk", 5, sum(result.observation.goal))
        with pytest.raises(EnvironmentExecutionError, match="two rows"):
            await client.reset(size=1)
    assert _ask(f"{address}/metadata")["version"] == "0.3.0"
    assert _ask(f"{address}/schema")["state"]["properties"]["size"]["default"] == 4
    assert _ask(f"{address}/step", {"action": {"move": "down"}})["observation"]["position"] == [1, 0]


async def test_an_action_that_does_not_fit_names_the_field(serve: Callable[[str], str]) -> None:
    from openenv_trl import GenericEnvClient

    async with GenericEnvClient(base_url=serve("ported_grid")) as client:
        with pytest.raises(ActionValidationError) as caught:
            await client.step({"move": "sideways", "strides": 9})
        assert [error["loc"] for error in caught.value.errors] == [["move"], ["strides"]]


async def test_a_text_game_with_rubric_transform_and_tasks(serve: Callable[[str], str]) -> None:
    package: Any = importlib.import_module("ported_text")
    address = serve("ported_text")
    assert _ask(f"{address}/ported_text/splits") == [
        {"name": "train", "type": "train"},
        {"name": "test", "type": "test"},
    ]
    assert _ask(f"{address}/ported_text/num_tasks", {"split": "train"}) == {"num_tasks": 2}
    assert _ask(f"{address}/ported_text/task", {"split": "train", "index": 1}) == {"task": "house"}
    async with package.TextEnv(base_url=address) as client:
        result = await client.reset(split="train", index=1)
        assert result.observation.prompt == "Please: say a word of 5 letters"
        rewards = []
        for word in ("boat", "home", "house"):
            result = await client.step(package.TextAction(message=word))
            assert result.observation.prompt == f"Please: you said {word!r}"
            rewards.append(result.reward)
        assert (rewards, result.done) == ([0.0, 0.25, 1.0], True)
        parts = {"WeightedSum": 1.0, "rubric_0": 1.0, "rubric_1": 1.0}
        assert result.observation.metadata["rubric"] == parts
