"""`HTTPEnvServer` and `create_fastapi_app`: the public package's other ways to make a server."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from openenv_trl.environment import Environment
from openenv_trl.server.app import HTTPEnvServer, create_app, create_fastapi_app
from openenv_trl.server.capacity import ConcurrencyConfig, ServerCapacityStatus
from openenv_trl.types import Action, Observation, ServerMode, State


class Game(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


class Score(State):
    points: int = 0


def _get(served: Any, path: str) -> Any:
    with urllib.request.urlopen(f"{served.url}{path}", timeout=30) as response:
        return json.load(response)


def test_arguments_are_taken_by_position_as_in_the_public_package(serve: Callable[..., Any]) -> None:
    app = create_fastapi_app(Game, Action, Observation, 5, None, "game", Score, mode="production")
    assert (app.state.env_name, app.state.max_concurrent_envs, app.state.mode) == ("game", 5, "production")
    assert "points" in _get(serve(app), "/schema")["state"]["properties"]


def test_routes_are_added_to_an_application_of_ones_own(serve: Callable[..., Any], ask: Callable[..., str]) -> None:
    started: list[str] = []

    @asynccontextmanager
    async def mine_first(_: FastAPI) -> AsyncGenerator[None]:
        started.append("mine")
        yield

    app = FastAPI(lifespan=mine_first)

    @app.get("/mine")
    def mine() -> dict[str, bool]:
        return {"mine": True}

    server = HTTPEnvServer(Game, Action, Observation, 2, None, "game", Score)
    server.register_routes(app, mode=ServerMode.SIMULATION)
    served = serve(app)
    assert _get(served, "/mine") == {"mine": True}
    assert _get(served, "/health") == {"status": "healthy"}
    assert json.loads(ask(served.socket(), '{"type":"reset"}'))["type"] == "observation"
    assert started == ["mine"]


def test_a_server_tells_of_its_sessions(serve: Callable[..., Any], ask: Callable[..., str]) -> None:
    server = HTTPEnvServer(Game, Action, Observation, max_concurrent_envs=2)
    app = FastAPI()
    server.register_routes(app)
    connection = serve(app).socket()
    opened = time.time()
    ask(connection, '{"type":"reset"}')
    ask(connection, '{"type":"step","data":{}}')
    assert (server.active_sessions, server.max_concurrent_envs, server.is_concurrency_safe) == (1, 2, True)
    assert server.get_capacity_status() == ServerCapacityStatus(active_sessions=1, max_sessions=2)
    (hosted,) = server.host.sessions.all()
    info = server.get_session_info(hosted.session_id)
    assert info is not None
    assert (info.session_id, info.step_count, info.environment_type) == (hosted.session_id, 1, "Game")
    assert abs(info.created_at - opened) < 60
    assert info.last_activity_at >= info.created_at
    assert server.get_session_info("nobody") is None


def test_the_configuration_is_as_given() -> None:
    config = ConcurrencyConfig(max_concurrent_envs=3, session_timeout=9)
    assert HTTPEnvServer(Game, Action, Observation, concurrency_config=config).concurrency_config == config


def test_a_status_counts_no_more_sessions_than_there_may_be() -> None:
    status = ServerCapacityStatus.from_counts(2, 2)
    assert (status.available_slots, status.is_at_capacity) == (0, True)
    with pytest.raises(ValidationError, match="more than max_sessions"):
        ServerCapacityStatus.from_counts(3, 2)


@pytest.mark.parametrize(("mode", "episode_routes"), [("simulation", True), ("production", False)])
def test_the_public_packages_criteria_for_a_url_are_met(
    serve: Callable[..., Any], mode: str, episode_routes: bool
) -> None:
    served = serve(create_app(Game, Action, Observation, mode=mode))
    page, metadata, schema = (_get(served, path) for path in ("/openapi.json", "/metadata", "/schema"))
    assert page["info"]["version"].startswith("1.")
    assert _get(served, "/health")["status"] == "healthy"
    assert isinstance(metadata["name"], str)
    assert isinstance(metadata["description"], str)
    assert all(isinstance(schema[key], dict) for key in ("action", "observation", "state"))
    request = urllib.request.Request(f"{served.url}/mcp", data=b"{}", headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        assert (response.status, json.load(response)["jsonrpc"]) == (200, "2.0")
    assert [path in page["paths"] for path in ("/reset", "/step", "/state")] == [episode_routes] * 3
