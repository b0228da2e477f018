"""An environment that is asked for what it cannot do says so to its caller, as a `ConfigurationError` in its own words:
on both wires, over HTTP and JSON-RPC, wherever its code runs. A public client is told by the code that it knows."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from openenv_trl.client import GenericEnvClient, MCPToolClient
from openenv_trl.errors import ConfigurationError, EnvironmentExecutionError, OpenEnvError
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings, Execution

pytestmark = pytest.mark.anyio

NO_GAME = "There is no game 'nosuch'. Reset with game='chess' or game='go'."
NO_CLOCK = "The clock has no key: set CLOCK_KEY on the server."

GAMES = f"""
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ConfigurationError
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State


class Move(Action):
    to: str = ""


class Games(Environment[Move, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, game="chess"):
        if game == "broken":
            raise ValueError("the board fell down")
        if game not in ("chess", "go"):
            raise ConfigurationError({NO_GAME!r})
        return Observation()

    def step(self, action, timeout_s=None, **kwargs):
        if action.to == "clock":
            raise ConfigurationError({NO_CLOCK!r})
        return Observation(reward=1.0)

    @tool
    def read_clock(self) -> str:
        "The time."
        raise ConfigurationError({NO_CLOCK!r})

    @tool
    def drop(self) -> str:
        "Drop a piece."
        raise ValueError("it broke")

    @property
    def state(self):
        raise ConfigurationError({NO_CLOCK!r})


class AsyncGames(Games):
    async def reset_async(self, **arguments):
        return self.reset(**arguments)

    async def step_async(self, action, timeout_s=None, **kwargs):
        return self.step(action)


app = create_app(Games, Move, Observation, max_concurrent_envs=8)
"""


@pytest.fixture
def games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of environments, where also a worker process can import it."""
    (tmp_path / "refusing_games.py").write_text(GAMES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module("refusing_games")


@pytest.fixture
def serve_games(games: Any, serve: Callable[..., Any]) -> Callable[..., Any]:
    def start(name: str = "Games", execution: Execution | None = None) -> Any:
        settings = AppSettings(execution=execution)
        app = create_app(getattr(games, name), games.Move, games.Observation, max_concurrent_envs=8, settings=settings)
        return serve(app)

    return start


@pytest.fixture
def two_workers(games: Any) -> Iterator[str]:
    """The address of a server of two processes."""
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:
        command = [sys.executable, "-m", "openenv_trl.server", "refusing_games:app", "--workers", "2"]
        process = subprocess.Popen(
            [*command, "--fd", str(listening.fileno())],
            pass_fds=[listening.fileno()],
            cwd=Path(games.__file__).parent,
            env={**os.environ, "OPENENV_TRL_DRAIN_TIMEOUT_S": "0"},
        )
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def _is_told(url: str, wire: Literal["native", "openenv"]) -> None:
    async with MCPToolClient(url, wire=wire, connect_timeout_s=60) as env:
        for call, phase, words in (
            (lambda: env.reset(game="nosuch"), "reset", NO_GAME),
            (lambda: env.step({"to": "clock"}), "step", NO_CLOCK),
            (lambda: env.step({"type": "call_tool", "tool_name": "read_clock", "arguments": {}}), "step", NO_CLOCK),
            (lambda: env.call_tool("read_clock"), "call_tool", NO_CLOCK),
            (env.state, "state", NO_CLOCK),
        ):
            with pytest.raises(ConfigurationError) as told:
                await call()
            assert (str(told.value), told.value.phase, told.value.retryable) == (words, phase, False)
        with pytest.raises(EnvironmentExecutionError, match="the board fell down"):
            await env.reset(game="broken")
        with pytest.raises(OpenEnvError, match="execution_error"):
            await env.call_tool("drop")
        await env.reset(game="go")
        assert (await env.step({"to": "a1"})).reward == 1.0


@pytest.mark.parametrize("wire", ["native", "openenv"])
@pytest.mark.parametrize(
    ("name", "execution"),
    [
        ("Games", "loop"),
        ("Games", "thread"),
        ("AsyncGames", "auto"),
        ("Games", "process"),
        ("AsyncGames", "process"),
    ],
)
async def test_what_cannot_be_done_is_told_in_the_environments_words_wherever_it_runs(
    serve_games: Callable[..., Any], name: str, execution: Execution, wire: Literal["native", "openenv"]
) -> None:
    await _is_told(serve_games(name, execution).url, wire)


async def test_a_server_of_several_processes_tells_it_on_both_wires(two_workers: str) -> None:
    await _is_told(two_workers, "native")
    await _is_told(two_workers, "openenv")


def test_an_environment_in_this_process_tells_it_alike(games: Any) -> None:
    with pytest.raises(ConfigurationError) as told:
        games.Games().reset(game="nosuch")
    assert str(told.value) == NO_GAME


def test_a_blocking_client_is_told(serve_games: Callable[..., Any]) -> None:
    with (
        GenericEnvClient(serve_games().url).sync() as env,
        pytest.raises(ConfigurationError, match=r"^There is no game 'nosuch'\. Reset with game='chess'"),
    ):
        env.reset(game="nosuch")


def test_a_public_client_gets_the_code_that_it_knows(serve_games: Callable[..., Any], ask: Callable[..., str]) -> None:
    connection = serve_games().socket()
    answer = json.loads(ask(connection, '{"type":"reset","data":{"game":"nosuch"}}'))
    assert answer == {
        "type": "error",
        "data": {"message": NO_GAME, "code": "EXECUTION_ERROR", "reason": "configuration"},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_clock"}}
    error = json.loads(ask(connection, json.dumps({"type": "mcp", "data": request})))["data"]["error"]
    assert error == {
        "code": -32603,
        "message": NO_CLOCK,
        "data": {"error_type": "execution_error", "reason": "configuration"},
    }


@pytest.mark.parametrize("execution", ["thread", "process"])
def test_over_http_it_is_the_request_that_cannot_be_carried_out(
    serve_games: Callable[..., Any], execution: Execution
) -> None:
    url = serve_games(execution=execution).url
    for path, body, words in (
        ("/reset", {"game": "nosuch"}, NO_GAME),
        ("/step", {"action": {"to": "clock"}}, NO_CLOCK),
    ):
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as told:
            urllib.request.urlopen(request)
        assert told.value.code == 422
        assert json.load(told.value)["detail"] == [{"type": "value_error", "loc": ["body"], "msg": words}]
    broken = urllib.request.Request(f"{url}/reset", b'{"game": "broken"}', {"content-type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as failed:
        urllib.request.urlopen(broken)
    assert failed.value.code == 500


def test_the_servers_log_has_it_as_a_refusal_and_no_traceback(
    serve_games: Callable[..., Any], ask: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="openenv_trl.server"):
        ask(serve_games().socket(), '{"type":"reset","data":{"game":"nosuch"}}')
    (told,) = [record for record in caplog.records if NO_GAME in record.getMessage()]
    assert (told.levelname, told.exc_info) == ("INFO", None)
