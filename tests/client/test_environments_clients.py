"""Every environment here has a client that is found by its name, and that acts by typed actions and by tools alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from openenv_trl.client import AutoEnv, EnvClient, MCPToolClient
from openenv_trl.client.discovery import installed_environments
from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.providers import ProcessProvider
from openenv_trl.types import CallToolAction

FOLDERS = sorted(path.parent for path in (Path(__file__).parents[2] / "environments").glob("*/openenv.yaml"))
NAMES = [folder.name for folder in FOLDERS]

CALLS: dict[str, tuple[dict[str, str], str, dict[str, Any]]] = {
    "atari_env": ({"ATARI_GAME": "pong"}, "act", {"action": "NOOP"}),
    "blackjack_env": ({}, "hit", {}),
    "calendar_env": ({}, "settings_get", {"setting": "timezone"}),
    "coding_env": ({}, "run_python", {"code": "print(1)"}),
    "openspiel_env": ({"OPENSPIEL_GAME": "tic_tac_toe"}, "play", {"move": "3"}),
}
"""Of each typed client: its server's variables, and a call of a tool that may be the first and the only one."""


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_each_environments_client_is_found_by_its_name(folder: Path) -> None:
    name = yaml.safe_load((folder / "openenv.yaml").read_text(encoding="utf-8"))["name"]
    found = AutoEnv.get_env_class(name.removesuffix("_env"))
    assert issubclass(found, EnvClient)
    assert found.__module__ == f"{folder.name}.client"
    assert installed_environments()[name].action_class().__name__


def test_every_typed_client_is_tried_here() -> None:
    typed = {name for name in NAMES if not issubclass(AutoEnv.get_env_class(name), MCPToolClient)}
    assert typed == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_typed_client_calls_tools_in_each_way_alike(name: str) -> None:
    variables, tool, arguments = CALLS[name]
    folder = FOLDERS[NAMES.index(name)]
    call: dict[str, Any] = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
    provider = ProcessProvider(folder, env_vars=variables)
    with AutoEnv.get_env_class(name)(provider=provider, message_timeout_s=60).sync() as env:
        assert tool in [each.name for each in env.list_tools()]
        seen: list[Any] = []
        for act in (
            lambda: env.step(call),
            lambda: env.step(CallToolAction(tool_name=tool, arguments=arguments)),
            lambda: env.call_tool(tool, **arguments),
            lambda: env.call_tool(tool, arguments),
        ):
            before = env.reset(seed=3).observation
            result = act()
            assert type(result.observation) is type(before)
            seen.append((result.reward, result.done, _without_times(result.observation.model_dump())))
        assert all(each == seen[0] for each in seen)
        env.reset(seed=3)
        with pytest.raises(ConfigurationError, match=r"An action must be .*CallToolAction or a mapping, not int"):
            env.step(3)
        with pytest.raises(ActionValidationError, match="no_such_tool"):
            env.call_tool("no_such_tool")
        assert env.call_tool(tool, arguments).done is seen[0][1], "what was refused has cost nothing"


def _without_times(fields: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in fields["metadata"].items() if not key.endswith(("_s", "_ms", "seconds"))}
    return {**fields, "metadata": metadata}
