"""The echo served: through its client, many sessions at once, and as the README shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import yaml
from echo_env import CallToolAction, EchoEnv

from openenv_trl.client import GenericEnvClient, fetch_metadata, fetch_schema

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]


async def test_tools_are_listed_called_and_stepped(echo_server: str) -> None:
    async with EchoEnv(echo_server) as env:
        await env.reset(episode_id="mine")
        tools = {tool.name: tool for tool in await env.list_tools()}
        assert list(tools) == ["echo_message", "echo_with_length"]
        assert tools["echo_message"].input_schema["properties"] == {"message": {"type": "string"}}
        assert await env.call_tool("echo_message", message="hello") == "hello"
        assert await env.call_tool("echo_with_length", message="hello") == {"message": "hello", "length": 5}
        result = await env.step(CallToolAction(tool_name="echo_message", arguments={"message": "hello"}))
        assert result.observation.result["data"] == "hello"
        assert (result.reward, result.done) == (None, False)
        assert (await env.state()).model_dump() == {"episode_id": "mine", "step_count": 1}


async def test_sessions_side_by_side_keep_their_own_count(echo_server: str) -> None:
    seen: dict[int, int] = {}

    async def one(number: int) -> None:
        async with GenericEnvClient(echo_server) as env:
            await env.reset()
            for _ in range(number):
                action = {"type": "call_tool", "tool_name": "echo_message", "arguments": {"message": str(number)}}
                assert (await env.step(action)).observation["result"]["data"] == str(number)
            seen[number] = (await env.state())["step_count"]

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(one, number)
    assert seen == {number: number for number in range(30)}


async def test_schema_and_metadata_name_what_the_manifest_names(echo_server: str) -> None:
    manifest = yaml.safe_load((PACKAGE / "openenv.yaml").read_text())
    schema, metadata = await fetch_schema(echo_server), await fetch_metadata(echo_server)
    assert schema["action"]["title"] == manifest["action"]
    assert schema["observation"]["title"] == manifest["observation"]
    assert (metadata["name"], metadata["version"], metadata["description"]) == (
        manifest["name"],
        manifest["version"],
        manifest["description"],
    )


def test_the_episode_of_the_readme_goes_as_shown(echo_server: str) -> None:
    readme = (PACKAGE / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    printed = re.search(r"prints\n\n```\n(.*?)```", readme, re.DOTALL)
    assert code is not None
    assert printed is not None
    program = code[1].replace("http://localhost:8000", echo_server)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == printed[1]


async def test_the_app_is_also_served_as_server_app_from_its_folder(tmp_path: Path) -> None:
    # As OpenEnv's cloud providers do: a folder of another name, with the package installed beside it.
    (tmp_path / "env").symlink_to(PACKAGE)
    code = "import os, sys; os.chdir(sys.argv[1]); sys.path[:0] = sys.argv[1:]; import server.app; server.app.app.title"
    await anyio.run_process([sys.executable, "-c", code, str(tmp_path / "env"), str(PACKAGE.parent)], check=True)


def test_types_and_client_load_no_server() -> None:
    code = (
        "import sys, echo_env; echo_env.EchoEnv; echo_env.CallToolAction;"
        "print(sorted({'echo_env.server', 'fastapi', 'uvicorn'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
