"""The public package's client on this server. It lives in ``.venv-openenv``; without that the test is left out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[3] / ".venv-openenv" / "bin" / "python"

PLAY = """
import json, sys
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.mcp_client import MCPToolClient

with MCPToolClient(base_url=sys.argv[1]).sync() as env:
    opening = env.reset(episode_id="mine")
    seen = {
        "opening": [opening.reward, opening.done, opening.observation.metadata],
        "tools": {tool.name: tool.input_schema for tool in env.list_tools()},
        "called": [env.call_tool(name, message="hello") for name in ("echo_message", "echo_with_length")],
    }
    env.step(ListToolsAction())
    steps = [
        env.step(CallToolAction(tool_name=name, arguments={"message": "hello"}))
        for name in ("echo_message", "echo_with_length")
    ]
    seen["steps"] = [[step.observation.result, step.reward, step.done] for step in steps]
    missing = env.step(CallToolAction(tool_name="shout", arguments={})).observation
    seen["missing"] = [missing.result, missing.error.error_type.value]
    state = env.state()
    seen["state"] = [state.episode_id, state.step_count]
print(json.dumps(seen))
"""


def test_the_public_packages_client_plays_here_as_at_home(echo_server: str) -> None:
    if not PYTHON.exists():
        text = "no .venv-openenv with the public package: `make .venv-openenv/.openenv` builds it"
        if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
            pytest.fail(text)
        pytest.skip(text)
    run = subprocess.run([PYTHON, "-c", PLAY, echo_server], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    schema = {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["message"],
        "additionalProperties": False,
    }
    text = {"type": "text", "annotations": None, "meta": None}
    said = {
        "content": [{**text, "text": "hello"}],
        "structured_content": {"result": "hello"},
        "meta": {"fastmcp": {"wrap_result": True}},
        "data": "hello",
        "is_error": False,
    }
    value = {"message": "hello", "length": 5}
    counted = {
        "content": [{**text, "text": json.dumps(value, separators=(",", ":"))}],
        "structured_content": value,
        "meta": None,
        "data": value,
        "is_error": False,
    }
    assert seen == {
        "opening": [0.0, False, {"status": "ready", "message": "Echo environment ready!"}],
        "tools": {"echo_message": schema, "echo_with_length": schema},
        "called": ["hello", value],
        "steps": [[said, None, False], [counted, None, False]],
        "missing": [None, "tool_not_found"],
        "state": ["mine", 4],
    }
