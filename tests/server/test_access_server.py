"""Tokens and origins at the door of a real server: over HTTP, over WebSockets, and from our own clients."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from openenv_trl.client import GenericEnvClient
from openenv_trl.client.credentials import with_token
from openenv_trl.client.inquiry import fetch_health, fetch_metadata, fetch_schema
from openenv_trl.environment import Environment
from openenv_trl.errors import ConnectionFailedError
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State

TOKEN, AGENT = "trainer-secret-0123456789", "agent-secret-0123456789"


class Quiet(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation(reward=1.0, done=True)

    @property
    def state(self) -> State:
        return State()


@pytest.fixture
def guarded(serve: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENENV_TRL_TOKEN", TOKEN)
    monkeypatch.setenv("OPENENV_TRL_AGENT_TOKEN", AGENT)
    address = serve(create_app(Quiet, Action, Observation, max_concurrent_envs=8)).address
    monkeypatch.delenv("OPENENV_TRL_TOKEN")
    monkeypatch.delenv("OPENENV_TRL_AGENT_TOKEN")
    return address


def handshake_status(address: str, path: str, **headers: str) -> int:
    try:
        with connect(f"ws://{address}{path}", additional_headers=headers, compression=None):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


@pytest.mark.parametrize("path", ["/ws", "/mcp", "/unknown"])
def test_a_socket_without_the_token_is_refused_before_it_opens(guarded: str, path: str) -> None:
    assert handshake_status(guarded, path) == 401
    assert handshake_status(guarded, path, Authorization="Bearer wrong") == 401
    assert handshake_status(guarded, path, Authorization=f"Bearer {AGENT}") == 403
    assert handshake_status(guarded, f"{path}?token={TOKEN}") == 401


def test_a_socket_with_the_token_opens_unless_a_foreign_page_asked(guarded: str) -> None:
    assert handshake_status(guarded, "/ws", Authorization=f"Bearer {TOKEN}") == 101
    assert handshake_status(guarded, "/ws", Authorization=f"Bearer {TOKEN}", Origin=f"http://{guarded}") == 101
    assert handshake_status(guarded, "/ws", Authorization=f"Bearer {TOKEN}", Origin="https://evil.example") == 403


def test_http_routes_say_what_is_missing(guarded: str) -> None:
    with httpx.Client(base_url=f"http://{guarded}", trust_env=False, timeout=60) as http:
        refused = http.get("/metadata")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert "OPENENV_TRL_TOKEN" in refused.json()["detail"]
        assert http.get("/metadata", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert http.get("/schema", headers={"Authorization": f"Bearer {AGENT}"}).status_code == 403
        assert http.get("/openapi.json").status_code == 401
        assert http.get("/health").status_code == 200
        assert http.get("/health", headers={"Origin": "https://evil.example"}).status_code == 403


def test_an_open_server_refuses_foreign_pages_all_the_same(serve: Callable[[Any], Any]) -> None:
    address = serve(create_app(Quiet, Action, Observation, settings=AppSettings())).address
    assert handshake_status(address, "/ws") == 101
    assert handshake_status(address, "/ws", Origin=f"http://{address}") == 101
    assert handshake_status(address, "/ws", Origin="https://evil.example") == 403


def test_an_allowed_page_is_told_what_it_may_send(serve: Callable[[Any], Any]) -> None:
    settings = AppSettings.from_environment(
        {"OPENENV_TRL_TOKEN": TOKEN, "OPENENV_TRL_ALLOWED_ORIGINS": "https://app.example, https://b.example"}
    )
    address = serve(create_app(Quiet, Action, Observation, settings=settings)).address
    asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as http:
        allowed = http.options("/mcp", headers={**asks, "Access-Control-Request-Headers": "authorization"})
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert http.options("/mcp", headers={**asks, "Origin": "https://evil.example"}).status_code == 400


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Authorization": f"Bearer {AGENT}"}, r"status 403: The agent's token opens the tools at /mcp"),
        ({"Origin": "https://evil.example"}, r"status 403: Pages of the origin 'https://evil.example' may not"),
        ({}, r"status 401: This server needs a token\. Send the header"),
    ],
)
async def test_our_client_shows_why_the_door_is_shut(guarded: str, headers: dict[str, str], words: str) -> None:
    with pytest.raises(ConnectionFailedError, match=words):
        await GenericEnvClient(guarded, headers=headers).connect()


@pytest.mark.anyio
async def test_our_clients_send_the_token_of_the_environment_variable(
    guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConnectionFailedError, match="401"):
        await fetch_schema(guarded)
    with pytest.raises(ConnectionFailedError, match="401"):
        await GenericEnvClient(guarded).connect()
    assert await fetch_health(guarded) == {"status": "healthy"}
    monkeypatch.setenv("OPENENV_TRL_TOKEN", TOKEN)
    assert "action" in await fetch_schema(guarded)
    assert (await fetch_metadata(guarded))["name"] == "Quiet"
    async with GenericEnvClient(guarded) as env:
        await env.reset()
        assert (await env.step({})).done
    with pytest.raises(ConnectionFailedError, match="401"):
        await GenericEnvClient(guarded, headers={"authorization": "Bearer wrong"}).connect()


def test_a_header_that_is_given_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_TRL_TOKEN", f" {TOKEN}\n")
    assert with_token(None, "localhost:8000") == {"Authorization": f"Bearer {TOKEN}"}
    assert with_token({"X-A": "1"}, "localhost:8000") == {"X-A": "1", "Authorization": f"Bearer {TOKEN}"}
    assert with_token({"AUTHORIZATION": "Basic eA=="}, "localhost:8000") == {"AUTHORIZATION": "Basic eA=="}
    for address in ("http://user:word@host:8000", "user:word@host"):
        assert with_token(None, address) is None
    monkeypatch.delenv("OPENENV_TRL_TOKEN")
    assert with_token(None, "localhost:8000") is None
    assert with_token({"X-A": "1"}, "localhost:8000") == {"X-A": "1"}


@pytest.mark.anyio
async def test_no_secret_is_written_anywhere(guarded: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    async with httpx.AsyncClient(base_url=f"http://{guarded}", trust_env=False, timeout=60) as http:
        for path in ("/metadata", "/schema", "/openapi.json", "/unknown", "/mcp", "/metrics", "/reset"):
            for token in (TOKEN, AGENT, TOKEN + "x"):
                answer = await http.get(path, headers={"Authorization": f"Bearer {token}"})
                told.append(f"{answer.headers} {answer.text}")
    for token in (TOKEN + "x", AGENT):
        client = GenericEnvClient(guarded, headers={"Authorization": f"Bearer {token}"})
        told.append(repr(client))
        with pytest.raises(ConnectionFailedError) as caught:
            await client.connect()
        told.append(f"{caught.value!r} {caught.value}")
    told += [record.getMessage() for record in caplog.records if not record.name.startswith(("httpcore", "websockets"))]
    assert any("Refused" in text for text in told)
    for text in told:
        assert TOKEN not in text
        assert AGENT not in text
