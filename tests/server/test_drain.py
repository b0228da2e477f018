"""SIGTERM: no new sessions, time for the episodes that run, and then an end that says so."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from openenv_trl.server.draining import Drain, Stage

APP = """
    import time
    from openenv_trl.environment import Environment
    from openenv_trl.server import create_app
    from openenv_trl.types import Action, Observation, State

    class Move(Action):
        last: bool = False
        seconds: float = 0

    class Game(Environment[Move, Observation, State]):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None):
            return Observation()

        def step(self, action, timeout_s=None, **kwargs):
            print("stepping", flush=True)
            time.sleep(action.seconds)
            return Observation(done=action.last)

        @property
        def state(self):
            return State()

        def close(self):
            print("closed", flush=True)

    app = create_app(Game, Move, Observation, max_concurrent_envs=8)
"""


class Server:
    """A server process, and what is asked of it."""

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command, "--fd", str(listening.fileno())],
                pass_fds=[listening.fileno()],
                cwd=folder,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def session(self) -> Any:
        return connect(f"ws://127.0.0.1:{self.port}/ws", open_timeout=60, close_timeout=1, compression=None)

    def get(self, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        content = json.loads(response.read())
        connection.close()
        return response.status, content

    def signal(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait_until_draining(self) -> None:
        for worker in range(2):  # where there are two
            while self.get(f"/ready?worker={worker}")[0] == 200:
                pass

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    (tmp_path / "game.py").write_text(textwrap.dedent(APP))
    with contextlib.ExitStack() as stack:

        def start_one(
            *options: str, server: str = "openenv_trl.server", drain_s: float = 30, **settings: str
        ) -> Server:
            command = [server, "game:app", *options]
            named = {"drain_timeout_s": str(drain_s), **settings}
            started = Server(tmp_path, command, {f"OPENENV_TRL_{name.upper()}": value for name, value in named.items()})
            stack.callback(started.process.kill)
            return started

        yield start_one


def say(session: Any, message: str) -> Any:
    session.send(message)
    return json.loads(session.recv(timeout=30))


def closing(session: Any) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as closed:
        session.recv(timeout=30)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


RESET = '{"type":"reset"}'
STEP = '{"type":"step","data":{}}'
LAST_STEP = '{"type":"step","data":{"last":true}}'


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one process", "two workers"])
def test_running_episodes_get_their_time_and_nothing_new_begins(
    start: Callable[..., Server], options: tuple[str, ...]
) -> None:
    server = start(*options)
    with server.session() as first, server.session() as second, server.session() as idle:
        for session in (first, second):
            assert say(session, RESET)["type"] == "observation"
        assert say(idle, '{"type":"state"}')["type"] == "state"
        assert server.get("/ready") == (200, {"ready": True})
        server.signal()
        server.wait_until_draining()
        status, content = server.get("/ready")
        assert (status, content["ready"]) == (503, False)
        assert server.get("/health")[0] == 200
        assert server.get("/capacity")[1]["draining"] is True
        assert closing(idle)[0] == 1012
        for _ in range(3):
            assert say(first, STEP)["data"]["done"] is False
        with server.session() as late:
            refusal = json.loads(late.recv(timeout=30))
            assert refusal["data"]["code"] == "CAPACITY_REACHED"
        for session in (first, second):
            assert say(session, LAST_STEP)["data"]["done"] is True
        code, reason = closing(first)
        assert code == 1012
        assert "shutting down" in reason
        status, out, err = server.end()
    assert (status, out.count("closed")) == (0, 3), err


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one process", "two workers"])
def test_an_episode_that_does_not_end_is_cut_off_after_its_time(
    start: Callable[..., Server], options: tuple[str, ...]
) -> None:
    server = start(*options, drain_s=0.3)
    with server.session() as session:
        say(session, RESET)
        server.signal()
        assert closing(session)[0] == 1012
        status, out, err = server.end()
    assert (status, out.count("closed")) == (0, 1), err


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one process", "two workers"])
def test_a_second_signal_ends_it_at_once(start: Callable[..., Server], options: tuple[str, ...]) -> None:
    server = start(*options, drain_s=3600)
    with server.session() as session:
        say(session, RESET)
        server.signal()
        server.wait_until_draining()
        server.signal()
        assert closing(session)[0] == 1012
        status, out, err = server.end()
    assert (status, out.count("closed")) == (0, 1), err


def test_further_signals_end_it_though_an_environment_blocks_the_event_loop(start: Callable[..., Server]) -> None:
    server = start(drain_s=3600, execution="loop")
    with server.session() as session:
        session.send('{"type":"step","data":{"seconds":3600}}')
        assert server.process.stdout is not None
        assert server.process.stdout.readline() == "stepping\n"
        while server.process.poll() is None:
            server.signal()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(0.2)
    status, _, err = server.end()
    assert status == 1
    assert "blocked the event loop" in err


def test_sessions_without_an_episode_do_not_hold_it_up(start: Callable[..., Server]) -> None:
    server = start(drain_s=3600)
    with server.session() as fresh, server.session() as between:
        say(fresh, '{"type":"state"}')
        say(between, RESET)
        say(between, LAST_STEP)
        server.signal()
        assert server.end()[0] == 0


def test_a_signal_that_comes_while_the_second_worker_starts_is_not_lost(start: Callable[..., Server]) -> None:
    for _ in range(3):
        server = start("--workers", "2", drain_s=3600)
        assert server.get("/health")[0] == 200  # of whichever worker is up first
        server.signal()
        assert server.end()[0] == 0


def test_a_client_that_leaves_lets_it_end(start: Callable[..., Server]) -> None:
    server = start(drain_s=3600)
    with server.session() as session:
        say(session, RESET)
        server.signal()
        server.wait_until_draining()
    assert server.end()[0] == 0


def test_under_plain_uvicorn_the_environments_are_closed(start: Callable[..., Server]) -> None:
    server = start(server="uvicorn")
    with server.session() as session:
        say(session, RESET)
        server.signal()
        assert closing(session)[0] == 1012
        _, out, err = server.end()
    assert out.count("closed") == 1, err


def test_a_drain_is_over_when_no_session_is_left() -> None:
    drain = Drain(30.0)
    assert drain.look(0.0, 0) is Stage.SERVING
    drain.begin(10.0)
    assert drain.look(10.0, 2) is Stage.DRAINING
    assert drain.look(11.0, 0) is Stage.OVER


def test_a_drain_is_over_when_its_time_is_and_beginning_again_gives_no_more() -> None:
    drain = Drain(30.0)
    drain.begin(10.0)
    drain.begin(35.0)
    assert drain.look(39.9, 1) is Stage.DRAINING
    assert drain.look(40.0, 1) is Stage.OVER


def test_a_drain_can_be_ended() -> None:
    drain = Drain(30.0)
    drain.begin(10.0)
    drain.end()
    assert drain.look(10.0, 5) is Stage.OVER
