"""The calendars served: by the typed client, as tools, many sessions at once, and for the public package's client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from calendar_env import CalendarAction, CalendarEnv
from calendar_env import models as models_module
from calendar_env.server.calendar_environment import CalendarEnvironment

from openenv_trl.client import GenericEnvClient, fetch_metadata, fetch_schema
from openenv_trl.errors import ActionValidationError, ConfigurationError, EnvironmentExecutionError

pytestmark = pytest.mark.anyio
PACKAGE = Path(__file__).resolve().parents[1]
PUBLIC_PYTHON = PACKAGE.parents[1] / ".venv-openenv" / "bin" / "python"

TASK = {"task": "create_event", "level": "easy", "task_seed": 1}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("calendarList_list", {}),
    ("events_list", {"calendarId": "primary", "singleEvents": True, "maxResults": 5}),
    ("events_get", {"calendarId": "primary", "eventId": "none"}),
    ("settings_get", {"setting": "timezone"}),
    ("finish", {"message": "done"}),
]


def action(name: str, arguments: dict[str, Any]) -> CalendarAction:
    return CalendarAction(action_type="ToolCallAction", tool_name=name, arguments=arguments)


async def test_the_typed_client_gets_what_the_environment_gives(calendar_server: str) -> None:
    local = CalendarEnvironment()
    async with CalendarEnv(calendar_server) as env:
        assert (await env.reset(**TASK)).observation == local.reset(**TASK)
        for name, arguments in CALLS:
            expected = local.step(action(name, arguments))
            result = await env.step(action(name, arguments))
            assert result.observation == expected
            assert (result.reward, result.done) == (expected.reward, expected.done)
        state = await env.state()
        assert (state.task_id, state.step_count) == ("create_event/easy/1", len(CALLS))


async def test_tools_are_offered_and_are_the_same_steps(calendar_server: str) -> None:
    local = CalendarEnvironment()
    async with GenericEnvClient(calendar_server) as env:
        assert [tool.name for tool in await env.list_tools()] == [tool.name for tool in local.list_tools()]
        assert (await env.reset(**TASK)).observation["message"] == local.reset(**TASK).message
        for name, arguments in CALLS:
            expected = local.step(action(name, arguments))
            result = await env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
            assert result.observation["message"] == expected.message
            assert (result.reward, result.done) == (expected.reward, expected.done)
        assert result.observation["metadata"]["score"]["parts"]


def test_the_blocking_client_plays_a_task(calendar_server: str) -> None:
    with CalendarEnv(calendar_server).sync() as env:
        env.reset(**TASK)
        assert env.step(action("settings_get", {"setting": "weekStart"})).observation.resource["value"] == "1"


async def test_many_sessions_at_once_have_calendars_of_their_own(calendar_server: str) -> None:
    seen: dict[int, tuple[list[str], str]] = {}

    async def work(number: int) -> None:
        async with CalendarEnv(calendar_server) as env:
            await env.reset(task="create_event", level="easy", task_seed=number % 4)
            for part in range(3):
                hours = {
                    "start": {"dateTime": f"2031-01-0{part + 1}T09:00:00"},
                    "end": {"dateTime": "2031-02-01T09:00:00"},
                }
                body = {"calendarId": "primary", "summary": f"unmistakable {number}", **hours}
                assert (await env.step(action("events_insert", body))).observation.success
            search = {"calendarId": "primary", "q": "unmistakable"}
            found = (await env.step(action("events_list", search))).observation.resource["items"]
            seen[number] = ([event["summary"] for event in found], found[0]["id"])

    async with anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(work, number)
    assert {number: summaries for number, (summaries, _) in seen.items()} == {
        number: [f"unmistakable {number}"] * 3 for number in range(60)
    }
    # Equal tasks and calls make equal ids, whatever the other sessions do.
    assert {seen[number][1] for number in range(0, 60, 4)} == {seen[0][1]}


async def test_what_a_client_does_wrong_is_told_and_the_session_goes_on(calendar_server: str) -> None:
    async with GenericEnvClient(calendar_server) as env:
        with pytest.raises(EnvironmentExecutionError, match="reset"):
            await env.step({"action_type": "ListToolsAction"})
        with pytest.raises(ConfigurationError, match=r"'sql_content'.*task_seed"):
            await env.reset(sql_content="x")
        await env.reset(**TASK)
        with pytest.raises(ActionValidationError, match="action_type"):
            await env.step({"action_type": "Explode"})
        wrong = {"type": "call_tool", "tool_name": "events_get", "arguments": {"calendarId": "primary"}}
        with pytest.raises(ActionValidationError, match="eventId"):
            await env.step(wrong)
        listed = await env.step({"action_type": "ListToolsAction"})
        assert len(listed.observation["tools_list"]) == 36


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("calendars_insert", {"summary": "half \ud800"}),
        ("events_list", {"calendarId": "\udfff"}),
        (
            "freebusy_query",
            {**dict.fromkeys(("timeMin", "timeMax"), "2026-01-01T00:00:00Z"), "items": [{"id": "\ud800"}]},
        ),
        ("finish", {"message": "\ud800"}),
    ],
)
async def test_half_a_character_is_refused_and_the_session_goes_on(
    calendar_server: str, name: str, arguments: dict[str, Any]
) -> None:
    async with CalendarEnv(calendar_server, wire="openenv") as env:
        await env.reset(**TASK)
        result = await env.step(action(name, arguments))
        assert (result.observation.tool_result["status_code"], result.done) == (400, False)
        assert "lone surrogate" in result.observation.message
        assert (await env.step(action("finish", {"message": "\U0001f600"}))).done


async def test_schema_and_metadata_name_what_the_manifest_names(calendar_server: str) -> None:
    manifest = yaml.safe_load((PACKAGE / "openenv.yaml").read_text())
    schema, metadata = await fetch_schema(calendar_server), await fetch_metadata(calendar_server)
    assert schema["action"]["title"] == manifest["action"]
    assert schema["observation"]["title"] == manifest["observation"]
    assert schema["state"]["properties"].keys() >= {"task_id", "acting_user", "now", "step_count"}
    assert hasattr(models_module, manifest["action"])
    assert (metadata["name"], metadata["version"], metadata["description"]) == (
        manifest["name"],
        manifest["version"],
        manifest["description"],
    )


async def test_the_app_is_also_served_as_server_app_from_its_folder(tmp_path: Path) -> None:
    # As OpenEnv's cloud providers do: a folder of another name, with the package installed beside it.
    (tmp_path / "env").symlink_to(PACKAGE)
    code = (
        "import os, sys; os.chdir(sys.argv[1]); sys.path[:0] = [sys.argv[1], sys.argv[2]];"
        "import server.app, calendar_env.models;"
        "print(server.app.app.title, server.app.CalendarAction is calendar_env.models.CalendarAction)"
    )
    run = await anyio.run_process([sys.executable, "-c", code, str(tmp_path / "env"), str(PACKAGE.parent)], check=True)
    assert run.stdout.decode().split()[-1] == "True"


PUBLIC_PLAY = """
import json, sys
from openenv.core.generic_client import GenericEnvClient

with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    opening = env.reset(task="create_event", level="easy", task_seed=1, reward="public")
    listed = env.step({"action_type": "ListToolsAction"})
    call = {"action_type": "ToolCallAction", "tool_name": "list_events", "arguments": {"calendarId": "primary"}}
    called = env.step(call)
    refused = env.step({**call, "arguments": {"calendarId": "nowhere"}})
    print(json.dumps({
        "opening": [opening.reward, opening.done, opening.observation["success"]],
        "tools": [len(listed.observation["tools_list"]), sorted(listed.observation["tools_list"][0]), listed.reward],
        "called": [called.observation["success"], called.observation["tool_result"]["status_code"], called.reward],
        "items": len(json.loads(called.observation["tool_result"]["text"])["items"]) > 0,
        "refused": [refused.observation["tool_result"]["isError"], refused.reward, refused.done],
        "steps": env.state()["step_count"],
    }))
"""


def test_the_public_packages_client_plays_here_with_its_own_names(calendar_server: str) -> None:
    if not PUBLIC_PYTHON.exists():
        text = "no .venv-openenv with the public package: `make .venv-openenv/.openenv` builds it"
        if os.environ.get("OPENENV_TRL_REQUIRE_INTEROP") == "1":
            pytest.fail(text)
        pytest.skip(text)
    run = subprocess.run([PUBLIC_PYTHON, "-c", PUBLIC_PLAY, calendar_server], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "opening": [None, False, True],
        "tools": [36, ["description", "inputSchema", "name"], 0.1],
        "called": [True, 200, 1.0],
        "items": True,
        "refused": [True, -0.5, False],
        "steps": 3,
    }
