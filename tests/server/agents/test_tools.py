"""What an agent can do with an environment's tools, and what it cannot, through the official SDK's client."""

from __future__ import annotations

import json
import logging
from typing import Any

import anyio
import pytest

pytestmark = pytest.mark.anyio


async def test_tools_are_listed_with_their_schemas(stage: Any) -> None:
    async with stage.agent(stage.serve()) as session:
        await session.initialize()
        tools = {tool["name"]: tool for tool in await session.list_tools()}
    assert tools["add"]["description"] == "Add to the count."
    assert tools["add"]["inputSchema"]["properties"] == {"number": {"type": "integer"}}
    assert tools["look"]["inputSchema"]["type"] == "object"


async def test_results_have_text_and_structure(stage: Any) -> None:
    async with stage.agent(stage.serve(), "?seed=7") as session:
        await session.initialize()
        added = await session.call_tool("add", {"number": 3})
        assert (stage.texts(added), added["structuredContent"], added["isError"]) == (["10"], {"result": 10}, False)
        shape = await session.call_tool("shape", {})
        assert shape["structuredContent"] == {"sides": 3, "names": ["a", "b"], "inner": {"deep": None}}
        assert json.loads(stage.texts(shape)[0]) == shape["structuredContent"]
        assert stage.texts(await session.call_tool("text", {})) == ["plain words"]


async def test_an_agent_sees_the_observation_and_not_what_is_the_trainers(stage: Any) -> None:
    async with stage.agent(stage.serve(), "?seed=7") as session:
        await session.initialize()
        looked = await session.call_tool("look", {})
        assert looked["structuredContent"] == {"text": "7"}
        assert "secret-answer" not in str(looked)
        assert "0.25" not in str(looked)
        finished = await session.call_tool("finish", {})
        assert finished["structuredContent"] == {"text": "finished", "done": True}
        assert stage.texts(finished)[-1] == "The episode is over."


async def test_mistakes_of_the_model_are_results_that_it_can_read(stage: Any) -> None:
    async with stage.agent(stage.serve()) as session:
        await session.initialize()
        wrong = await session.call_tool("add", {"number": "many", "more": 1})
        assert wrong["isError"]
        assert "number" in stage.texts(wrong)[0]
        assert "more" in stage.texts(wrong)[0]
        unknown = await session.call_tool("fly", {})
        assert unknown["isError"]
        assert "'fly'" in stage.texts(unknown)[0]
        assert "add" in stage.texts(unknown)[0]
        broken = await session.call_tool("break_down", {})
        assert broken["isError"]
        assert "the machine broke" in stage.texts(broken)[0]
        assert (await session.call_tool("return_nonsense", {}))["isError"]
        assert stage.texts(await session.call_tool("add", {"number": 1})) == ["1"]


async def test_an_agent_whose_episode_is_over_is_told_who_begins_another(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with stage.agent(stage.serve()) as session:
        await session.initialize()
        begun = await session.call_tool("go_on", {})
        assert stage.texts(begun) == ["The tool 'go_on' failed: The hand is over. Call reset."]
        await session.call_tool("finish", {})
        over = await session.call_tool("go_on", {})
        assert over["isError"]
        assert stage.texts(over)[-1] == "The episode is over. Only the trainer can begin another: no tool can."
        assert "Only the trainer" in stage.texts(await session.call_tool("add", {"number": "many"}))[-1]
        assert stage.texts(await session.call_tool("add", {"number": 1})) == ["1"]
    refused = [record for record in caplog.records if "was refused" in record.getMessage()]
    assert [(record.levelno, record.exc_info) for record in refused] == [(logging.INFO, None)] * 2
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("name", ["reset", "step", "state", "close", "reset_async", "step_async", "call_tool"])
async def test_an_agent_has_no_power_over_the_episode(stage: Any, name: str) -> None:
    async with stage.agent(stage.serve()) as session:
        await session.initialize()
        listed = [tool["name"] for tool in await session.list_tools()]
        assert name not in listed
        for arguments in ({}, {"action": {}}, {"seed": 1}):
            assert (await session.call_tool(name, arguments))["isError"]
    (environment,) = stage.counter.built
    assert len(environment.resets) == 1
    assert environment.count == 0


@pytest.mark.parametrize("method", ["reset", "step", "state", "openenv/session/create", "openenv/session/close"])
async def test_no_method_of_the_protocol_controls_the_episode(stage: Any, method: str) -> None:
    async with stage.raw(stage.serve()) as (http, headers):
        message = {"jsonrpc": "2.0", "id": 5, "method": method, "params": {}}
        answer = await http.post("/mcp", headers=headers, json=message)
        assert '"error"' in answer.text
        assert '"result"' not in answer.text
    assert len(stage.counter.built) == 1
    assert len(stage.counter.built[0].resets) == 1


async def test_many_calls_of_one_agent_wait_for_each_other(stage: Any) -> None:
    async with stage.agent(stage.serve()) as session:
        await session.initialize()
        results: list[int] = []

        async def add() -> None:
            results.append(int(stage.texts(await session.call_tool("add", {"number": 1}))[0]))

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(add)
        assert sorted(results) == list(range(1, 17))


@pytest.mark.parametrize("name", ["build", "build_async"])
async def test_what_an_environment_reports_reaches_the_client_that_asked(stage: Any, name: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with stage.agent(stage.serve()) as session:
        await session.initialize()
        assert stage.texts(await session.call_tool(name, {"parts": 3}, progress_callback=hear)) == ["built"]
        assert stage.texts(await session.call_tool(name, {"parts": 3})) == ["built"]
    assert [(progress, total) for progress, total, _ in heard] == [(1, 3), (2, 3), (3, 3)]
    if name == "build":
        assert [message for *_, message in heard] == ["part 1", "part 2", "part 3"]


async def test_a_long_silent_call_is_reported_too(stage: Any) -> None:
    address = stage.serve()
    stage.app.state.mcp_protocol.progress_interval_s = 0.05
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        if len(heard) == 3:
            stage.counter.let_go.set()

    async with stage.agent(address) as session:
        await session.initialize()
        assert stage.texts(await session.call_tool("wait", {}, progress_callback=hear)) == ["waited"]
    assert heard == sorted(set(heard))


async def test_a_cancelled_call_ends_in_the_environment(stage: Any) -> None:
    pytest.importorskip("mcp_types", reason="the client of 1.x does not tell the server that it gave up")
    address = stage.serve()
    async with stage.agent(address) as session:
        await session.initialize()
        with anyio.move_on_after(30) as scope:
            async with anyio.create_task_group() as tasks:

                async def hang() -> None:
                    await session.call_tool("hang", {})

                tasks.start_soon(hang)
                await stage.until(stage.counter.hanging.is_set)
                tasks.cancel_scope.cancel()
        assert not scope.cancelled_caught
        await stage.until(lambda: stage.counter.built[0].cancelled == 1)


async def test_notifications_cancelled_ends_the_call_it_names(stage: Any) -> None:
    async with stage.raw(stage.serve()) as (http, headers):
        call = {"jsonrpc": "2.0", "id": "call-9", "method": "tools/call", "params": {"name": "hang", "arguments": {}}}
        answers: list[str] = []

        async def hang() -> None:
            answers.append((await http.post("/mcp", headers=headers, json=call)).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await stage.until(stage.counter.hanging.is_set)
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "call-9"}}
            assert (await http.post("/mcp", headers=headers, json=cancel)).status_code == 202
        assert "cancelled" in answers[0].lower()
        await stage.until(lambda: stage.counter.built[0].cancelled == 1)


async def test_a_client_is_told_that_the_tools_are_others_now(stage: Any) -> None:
    told = anyio.Event()

    async def hear(message: Any) -> None:
        if "ToolListChanged" in f"{type(message).__name__} {message!r}":
            told.set()

    async with stage.agent(stage.serve(stage.unlocking), hears=hear) as session:
        await session.initialize()
        assert [tool["name"] for tool in await session.list_tools()] == ["open_door"]
        assert stage.texts(await session.call_tool("open_door", {})) == ["open"]
        with anyio.fail_after(20):
            await told.wait()
        assert [tool["name"] for tool in await session.list_tools()] == ["open_door", "treasure"]
        taken = await session.call_tool("treasure", {})
        assert (stage.texts(taken), taken["structuredContent"]) == (["100"], {"result": 100})
        assert (await session.call_tool("treasure", {"more": 1}))["isError"]
        assert (await session.call_tool("nothing", {}))["isError"]
