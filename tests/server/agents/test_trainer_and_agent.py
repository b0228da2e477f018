"""A trainer and an agent in one environment, each with a token of its own."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from openenv_trl.client import GenericEnvClient

pytestmark = pytest.mark.anyio


async def test_trainer_and_agent_share_an_environment_each_with_a_token(stage: Any) -> None:
    address = stage.serve_with_tokens()
    trainers = {"Authorization": f"Bearer {stage.token}"}
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=60, headers=trainers) as http:
        create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
        session_id = (await http.post("/mcp", json=create)).json()["result"]["session_id"]
        async with (
            GenericEnvClient(f"http://{address}/ws?session_id={session_id}", headers=trainers) as trainer,
            stage.agent(address, f"?session_id={session_id}", token=stage.agent_token) as acting,
        ):
            await trainer.reset(seed=40)
            await acting.initialize()
            assert stage.texts(await acting.call_tool("add", {"number": 2})) == ["42"]
            assert (await trainer.state())["step_count"] == 42
            await trainer.reset(seed=0)
            assert stage.texts(await acting.call_tool("look", {})) == ['{"text":"0"}']
        assert not stage.counter.built[0].closed
        assert len(stage.counter.built) == 1
        close = {"jsonrpc": "2.0", "id": 2, "method": "openenv/session/close", "params": {"session_id": session_id}}
        assert "error" not in (await http.post("/mcp", json=close)).json()
        await stage.until(lambda: stage.agents == 0)


async def test_the_agents_token_opens_the_tools_and_nothing_of_the_trainers(stage: Any) -> None:
    address = stage.serve_with_tokens()
    async with stage.agent(address, token=stage.agent_token) as acting:
        await acting.initialize()
        assert stage.texts(await acting.call_tool("add", {"number": 2})) == ["2"]
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=60) as http:
        agents = {"Authorization": f"Bearer {stage.agent_token}"}
        for path in ("/reset", "/step"):
            assert (await http.post(path, headers=agents, json={})).status_code == 403
        assert (await http.get("/state", headers=agents)).status_code == 403
        create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
        refused = await http.post("/mcp", headers=agents, json=create)
        assert "session_id" not in (refused.json().get("result") or {})
        assert refused.json()["error"]["message"]
        assert (await http.post("/mcp", headers={"Accept": stage.both}, json=stage.initialize)).status_code == 401
    async with stage.raw(address, Authorization=f"Bearer {stage.token}") as (http, headers):
        stolen = {**headers, "Authorization": f"Bearer {stage.agent_token}"}
        assert (await http.post("/mcp", headers=stolen, json=stage.ping)).status_code == 404
        assert (await http.delete("/mcp", headers=stolen)).status_code == 404
        assert (await http.post("/mcp", headers=headers, json=stage.ping)).status_code == 200


async def test_no_secret_of_a_session_is_logged(stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with stage.agent(stage.serve_with_tokens(), token=stage.agent_token) as acting:
        await acting.initialize()
        await acting.call_tool("break_down", {})
    for record in caplog.records:
        if not record.name.startswith(("httpcore", "httpx", "mcp.client")):
            assert stage.agent_token not in f"{record.getMessage()} {record.exc_text}"
