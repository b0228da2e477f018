"""How an agent's session begins and ends, and whose environment it is."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import httpx
import pytest

from openenv_trl.server.settings import AppSettings

pytestmark = pytest.mark.anyio

DETACHED_S = 3.0
"""Longer than a busy machine takes from an agent's first message to its second, or none would come to its call."""


async def test_an_agent_says_hello_and_is_told_how_the_episode_begins(stage: Any) -> None:
    async with stage.agent(stage.serve(), "?seed=7&episode_id=12&level=hard") as session:
        told = await session.initialize()
        await session.send_ping()
    assert told["serverInfo"]["name"] == "Counter"
    assert told["capabilities"]["tools"]["listChanged"]
    assert "Counter environment" in told["instructions"]
    assert "begin at 7" in told["instructions"]
    assert "secret-answer" not in str(told)
    assert stage.counter.built[0].resets == [{"seed": 7, "episode_id": "12", "level": "hard"}]


async def test_two_agents_have_an_environment_each(stage: Any) -> None:
    address = stage.serve()
    async with stage.agent(address, "?seed=1") as one, stage.agent(address, "?seed=100") as other:
        await one.initialize()
        await other.initialize()
        assert stage.texts(await one.call_tool("add", {"number": 1})) == ["2"]
        assert stage.texts(await other.call_tool("add", {"number": 1})) == ["101"]
        assert stage.texts(await one.call_tool("add", {"number": 1})) == ["3"]
    assert len(stage.counter.built) == 2


async def test_delete_ends_the_session_and_frees_its_slot(stage: Any) -> None:
    address = stage.serve()
    async with stage.raw(address) as (http, headers):
        assert stage.free_slots == 3
        assert (await http.delete("/mcp", headers=headers)).status_code == 200
        assert stage.free_slots == 4
        assert stage.counter.built[0].closed
        assert (await http.post("/mcp", headers=headers, json=stage.ping)).status_code == 404
        assert stage.agents == 0


@pytest.mark.parametrize("name", ["hang", "wait"])
async def test_delete_during_a_call_frees_the_slot_at_once(stage: Any, name: str) -> None:
    address = stage.serve()
    async with stage.raw(address) as (http, headers):
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name}}
        async with anyio.create_task_group() as tasks:

            async def hang() -> None:
                with contextlib.suppress(httpx.HTTPError):
                    await http.post("/mcp", headers=headers, json=call)

            tasks.start_soon(hang)
            await stage.until(stage.counter.hanging.is_set)
            assert (await http.delete("/mcp", headers=headers)).status_code == 200
            assert stage.free_slots == 4
            assert stage.agents == 0
            assert not stage.counter.let_go.is_set()
        assert stage.counter.built[0].cancelled == (1 if name == "hang" else 0)


async def test_an_agent_that_vanished_gives_its_slot_back(stage: Any) -> None:
    address = stage.serve(settings=AppSettings(detached_timeout_s=DETACHED_S))
    async with stage.raw(address) as (http, headers):
        await stage.until(lambda: stage.free_slots == 4)
        await stage.until(lambda: stage.agents == 0)
        assert (await http.post("/mcp", headers=headers, json=stage.ping)).status_code == 404
    assert stage.counter.built[0].closed


async def test_a_call_that_runs_keeps_its_session(stage: Any) -> None:
    address = stage.serve(settings=AppSettings(detached_timeout_s=DETACHED_S))
    async with stage.agent(address) as session:
        await session.initialize()
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                assert stage.texts(await session.call_tool("wait", {})) == ["waited"]

            tasks.start_soon(wait)
            await stage.until(stage.counter.hanging.is_set)
            async with stage.raw(address):  # an agent that came later, and does nothing, has gone before
                await stage.until(lambda: len(stage.counter.built) == 2 and stage.counter.built[1].closed)
            assert stage.free_slots == 3
            stage.counter.let_go.set()


async def test_a_full_server_says_so(stage: Any) -> None:
    address = stage.serve(max_concurrent_envs=1)
    async with stage.agent(address) as first:
        await first.initialize()
        async with stage.agent(address, "?wait_s=0") as second:
            with pytest.raises(stage.protocol_error, match="capacity"):
                await second.initialize()


async def test_an_agent_waits_its_turn_for_a_slot(stage: Any) -> None:
    address = stage.serve(max_concurrent_envs=1)
    async with stage.raw(address) as (http, headers), stage.agent(address, "?wait_s=20&seed=5") as second:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.initialize)
            await stage.until(lambda: stage.app.state.metrics.waiting == 1)
            assert (await http.delete("/mcp", headers=headers)).status_code == 200
        assert stage.texts(await second.call_tool("add", {"number": 1})) == ["6"]


async def test_an_agent_that_left_while_it_waited_takes_no_slot(stage: Any) -> None:
    address = stage.serve(max_concurrent_envs=1)
    async with stage.raw(address) as (http, headers):
        async with anyio.create_task_group() as tasks:
            accepts = {"Accept": stage.both}
            tasks.start_soon(lambda: http.post("/mcp?wait_s=30", headers=accepts, json=stage.initialize))
            await stage.until(lambda: stage.app.state.metrics.waiting == 1)
            tasks.cancel_scope.cancel()
        await stage.until(lambda: stage.app.state.metrics.waiting == 0)
        assert (await http.delete("/mcp", headers=headers)).status_code == 200
        assert stage.free_slots == 1


@pytest.mark.parametrize(("where", "says"), [("reset", "no such level"), ("constructor", "BadStart")])
async def test_an_environment_that_cannot_begin_says_so_and_takes_no_slot(
    stage: Any, where: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.bad_start, "where", where)
    address = stage.serve(stage.bad_start)
    async with stage.agent(address) as session:
        with pytest.raises(stage.protocol_error, match=says):
            await session.initialize()
    assert stage.free_slots == 4
    assert stage.agents == 0


@pytest.mark.parametrize("query", ["?seed=x", "?seed=-1", "?wait_s=soon", "?session_id=none", "?session_id=a&seed=1"])
async def test_a_query_that_cannot_be_used_is_told(stage: Any, query: str) -> None:
    name = query.rpartition("?")[2].partition("=")[0]
    async with stage.agent(stage.serve(), query) as session:
        with pytest.raises(stage.protocol_error, match=name):
            await session.initialize()
    assert stage.counter.built == []


async def test_an_environment_without_tools_offers_none(stage: Any) -> None:
    async with stage.agent(stage.serve(stage.plain, max_concurrent_envs=1)) as session:
        await session.initialize()
        assert await session.list_tools() == []


async def test_a_message_while_the_environment_closes_finds_no_session(stage: Any) -> None:
    class SlowToClose(stage.counter):
        def close(self) -> None:
            self.hanging.set()
            assert self.let_go.wait(60)
            super().close()

    async with stage.raw(stage.serve(SlowToClose)) as (http, headers), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: http.delete("/mcp", headers=headers))
        await stage.until(stage.counter.hanging.is_set)
        try:
            assert (await http.post("/mcp", headers=headers, json=stage.ping)).status_code == 404
        finally:
            stage.counter.let_go.set()
    assert stage.counter.built[0].closed


async def test_messages_that_cross_the_sessions_end_are_no_fault_of_the_server(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    address = stage.serve(max_concurrent_envs=16)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
    for _ in range(8):
        async with stage.raw(address) as (http, headers), anyio.create_task_group() as tasks:

            async def post(http: httpx.AsyncClient = http, headers: dict[str, str] = headers) -> None:
                assert (await http.post("/mcp", headers=headers, json=cancel)).status_code in (202, 404)

            for _ in range(3):
                tasks.start_soon(post)
            assert (await http.delete("/mcp", headers=headers)).status_code in (200, 404)
            for _ in range(3):
                tasks.start_soon(post)
    await stage.until(lambda: stage.agents == 0)
    assert stage.free_slots == 16
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
