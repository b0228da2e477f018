"""A server where the package ``mcp`` is not installed."""

from __future__ import annotations

import sys
from typing import Any

import httpx
import pytest

from openenv_trl.client import GenericEnvClient

pytestmark = pytest.mark.anyio


async def test_an_agent_is_told_what_to_install_and_all_else_works(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openenv_trl.server.mcp_sdk", "openenv_trl.server.mcp_tools"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] in ("mcp", "mcp_types")]:
        monkeypatch.setitem(sys.modules, name, None)
    address = stage.serve()
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=60) as http:
        answer = await http.post("/mcp", headers={"Accept": stage.both}, json=stage.initialize)
        assert answer.json()["id"] == stage.initialize["id"]
        assert 'pip install "openenv-trl[mcp]"' in answer.json()["error"]["message"]
        assert (await http.get("/metadata")).status_code == 200
    assert stage.free_slots == 4
    async with GenericEnvClient(address) as trainer:
        await trainer.reset(seed=1)
        assert "add" in {tool.name for tool in await trainer.list_tools()}
