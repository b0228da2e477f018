"""Who may pass: decided without a server, a clock or a secret in any text."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.server.access import AccessControl, Refusal, Role, refusal_of_method
from openenv_trl.server.settings import AppSettings

TOKEN, AGENT = "trainer-secret-0123456789", "agent-secret-0123456789"
HOST = {"host": "localhost:8000"}


def control(**settings: Any) -> AccessControl:
    return AccessControl(AppSettings(**settings))


def status(refusal: Refusal | None) -> int | None:
    return None if refusal is None else refusal.status


def bearer(token: str) -> dict[str, str]:
    return {**HOST, "authorization": f"Bearer {token}"}


def test_without_a_token_every_route_is_open() -> None:
    for path in ("/ws", "/reset", "/mcp", "/metrics", "/health"):
        assert control().check(path, HOST) is None


@pytest.mark.parametrize("path", ["/ws", "/reset", "/step", "/state", "/mcp", "/metadata", "/metrics", "/docs", "/"])
def test_with_a_token_every_route_but_the_probes_needs_it(path: str) -> None:
    access = control(token=TOKEN)
    assert status(access.check(path, HOST)) == 401
    assert status(access.check(path, bearer("wrong"))) == 401
    assert status(access.check(path, {**HOST, "authorization": f"Basic {TOKEN}"})) == 401
    assert status(access.check(path, HOST, {"token": TOKEN})) == 401
    assert access.check(path, bearer(TOKEN)) is None
    assert access.check(path, {**HOST, "authorization": f"bearer   {TOKEN} "}) is None


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_need_no_token(path: str) -> None:
    assert control(token=TOKEN, agent_token=AGENT).check(path, HOST) is None


@pytest.mark.parametrize("path", ["/health/", "//health", "/health/../ws", "/HEALTH", "/healthz"])
def test_a_path_that_only_looks_like_a_probe_needs_the_token(path: str) -> None:
    assert status(control(token=TOKEN).check(path, HOST)) == 401


@pytest.mark.parametrize("path", ["/ws", "/reset", "/step", "/state", "/metrics", "/mcp/", "/docs", "/native"])
def test_the_agents_token_opens_no_route_but_the_tools(path: str) -> None:
    access = control(token=TOKEN, agent_token=AGENT)
    assert status(access.check(path, bearer(AGENT))) == 403
    assert access.check("/mcp", bearer(AGENT)) is None


def test_the_agents_token_opens_no_websocket() -> None:
    access = control(token=TOKEN, agent_token=AGENT)
    assert status(access.check("/mcp", {**bearer(AGENT), "upgrade": "WebSocket"})) == 403
    assert access.check("/mcp", {**bearer(TOKEN), "upgrade": "websocket"}) is None


def test_the_role_follows_the_token() -> None:
    access = control(token=TOKEN, agent_token=AGENT)
    assert access.role(bearer(TOKEN)) is Role.TRAINER
    assert access.role(bearer(AGENT)) is Role.AGENT
    assert access.role(HOST) is None
    assert control().role(HOST) is Role.TRAINER


@pytest.mark.parametrize("method", ["openenv/session/create", "openenv/session/close", "reset", "step", "state", ""])
def test_an_agent_controls_no_episode_in_the_public_dialect(method: str) -> None:
    assert refusal_of_method(Role.AGENT, method, {"session_id": "s"}) is not None
    assert refusal_of_method(Role.TRAINER, method, {}) is None


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_an_agent_uses_the_tools_of_a_session_that_it_was_given(method: str) -> None:
    assert refusal_of_method(Role.AGENT, method, {"session_id": "s"}) is None
    assert refusal_of_method(Role.AGENT, method, {}) is not None


def test_an_agents_token_without_a_trainers_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="Set token"):
        control(agent_token=AGENT)


def test_equal_tokens_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="the same"):
        control(token=TOKEN, agent_token=TOKEN)


@pytest.mark.parametrize("token", ["", "two words", "schlüssel", "line\nbreak", "tab\t"])
def test_a_token_that_no_header_carries_is_refused_without_being_told(token: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        control(token=token)
    assert not token or token not in str(caught.value)


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def spy(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return real(left, right)

    access = control(token=TOKEN, agent_token=AGENT)
    monkeypatch.setattr(hmac, "compare_digest", spy)
    for given_token in (TOKEN, AGENT, "wrong", ""):
        compared.clear()
        access.role(bearer(given_token))
        assert [right for _, right in compared] == [TOKEN.encode(), AGENT.encode()]


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://192.168.1.7", "192.168.1.7:80"),
        ("https://box", "box:443"),
        ("http://box.local:8000", "BOX.local:8000"),
    ],
)
def test_the_servers_own_pages_may_use_it(origin: str, host: str) -> None:
    assert control().check("/ws", {"host": host, "origin": origin}) is None


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost:9000",
        "http://localhost",
        "null",
        "",
        "file://",
        "localhost:8000",
        "http://[",
    ],
)
@pytest.mark.parametrize("path", ["/ws", "/mcp", "/health", "/reset"])
def test_a_foreign_page_is_refused_with_or_without_a_token(origin: str, path: str) -> None:
    assert status(control().check(path, {**HOST, "origin": origin})) == 403
    assert status(control(token=TOKEN).check(path, {**bearer(TOKEN), "origin": origin})) == 403


def test_a_name_that_someone_else_may_own_is_no_proof_of_being_the_servers_own() -> None:
    rebound = {"host": "evil.example:8000", "origin": "http://evil.example:8000"}
    assert status(control().check("/ws", rebound)) == 403
    # A page cannot know the token, so with one the name does not matter.
    assert control(token=TOKEN).check("/ws", {**rebound, "authorization": f"Bearer {TOKEN}"}) is None
    own = AccessControl(AppSettings(), own_hosts=("my-space.hf.space", ""))
    assert own.check("/ws", {"host": "my-space.hf.space", "origin": "https://my-space.hf.space"}) is None


def test_allowed_origins_may_use_it() -> None:
    access = control(allowed_origins=("https://app.example/", "http://other.example:80"))
    assert access.check("/ws", {**HOST, "origin": "https://app.example"}) is None
    assert access.check("/ws", {**HOST, "origin": "https://APP.example:443"}) is None
    assert access.check("/ws", {**HOST, "origin": "http://other.example"}) is None
    assert status(access.check("/ws", {**HOST, "origin": "http://app.example"})) == 403
    assert control(allowed_origins=("*",)).check("/ws", {**HOST, "origin": "null"}) is None


TEXT = st.text(max_size=60)


@given(origin=TEXT, host=TEXT, authorization=TEXT, path=TEXT.map("/route".__add__), upgrade=TEXT)
def test_any_headers_get_an_answer_that_tells_no_secret(
    origin: str, host: str, authorization: str, path: str, upgrade: str
) -> None:
    access = control(token=TOKEN, agent_token=AGENT)
    headers = {"origin": origin, "host": host, "authorization": authorization, "upgrade": upgrade}
    for some in (headers, {k: v for k, v in headers.items() if k != "origin"}):
        refusal = access.check(path, some)
        assert refusal is not None
        assert TOKEN not in refusal.message
        assert AGENT not in refusal.message


def test_no_secret_in_a_repr() -> None:
    settings = AppSettings.from_environment({"OPENENV_TRL_TOKEN": TOKEN, "OPENENV_TRL_AGENT_TOKEN": AGENT})
    told = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()} {AccessControl(settings)!r}"
    assert TOKEN not in told
    assert AGENT not in told
