"""Single HTTP requests to ``/mcp``: what begins no session, and clients that take no stream."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from openenv_trl.server.settings import AppSettings

pytestmark = pytest.mark.anyio

BOTH = "application/json, text/event-stream"


async def test_notifications_get_no_reply(stage: Any) -> None:
    async with stage.raw(stage.serve()) as (http, headers):
        answer = await http.post(
            "/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        assert (answer.status_code, answer.content) == (202, b"")


async def test_a_client_of_a_revision_without_sessions_falls_back_to_one_with(stage: Any) -> None:
    client = pytest.importorskip("mcp.client.client", reason="the first generation has no such client")
    async with client.Client(f"http://{stage.serve()}/mcp?seed=3") as session:
        result = await session.call_tool("add", {"number": 1})
        assert [content.text for content in result.content] == ["4"]


@pytest.mark.parametrize("accepts", ["application/json", "*/*"])
async def test_a_client_that_takes_no_stream_gets_plain_json(stage: Any, accepts: str) -> None:
    async with stage.raw(stage.serve(), Accept=accepts) as (http, headers):
        params = {"name": "add", "arguments": {"number": 2}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        answer = await http.post("/mcp", headers=headers, json=call)
        assert answer.json()["result"]["structuredContent"] == {"result": 2}


@pytest.mark.parametrize(
    ("method", "headers", "body", "status"),
    [
        ("GET", {"Accept": "text/event-stream"}, None, 405),
        ("DELETE", {"Accept": BOTH}, None, 400),
        ("POST", {"Accept": BOTH}, b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', 400),
        ("POST", {"Accept": BOTH}, b"no json", 400),
        ("POST", {"Accept": BOTH}, b"[]", 400),
        ("POST", {"Accept": BOTH}, b"\xff\xfe", 400),
        ("POST", {"Accept": BOTH, "Mcp-Session-Id": "unknown"}, b"{}", 404),
        (
            "POST",
            {"Accept": BOTH, "Mcp-Protocol-Version": "2031-01-01"},
            b'{"jsonrpc":"2.0","id":1,"method":"x"}',
            400,
        ),
    ],
)
async def test_what_begins_no_session_is_refused(
    stage: Any, method: str, headers: dict[str, str], body: bytes | None, status: int
) -> None:
    address = stage.serve()
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=60) as http:
        sent = {**headers, "Content-Type": "application/json"}
        answer = await http.request(method, "/mcp", headers=sent, content=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert stage.free_slots == 4
    assert stage.counter.built == []


async def test_a_message_beyond_the_limit_is_refused(stage: Any) -> None:
    address = stage.serve(settings=AppSettings(max_message_bytes=4096))
    async with stage.raw(address) as (http, headers):
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "x" * 5000}}
        assert (await http.post("/mcp", headers=headers, json=call)).status_code == 413
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        assert (await http.post("/mcp", headers=headers, json=ping)).status_code == 200
