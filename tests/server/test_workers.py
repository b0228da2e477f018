"""``--workers``: several processes are one server to its clients, whichever of them they reach."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from openenv_trl.wire.frames import WAIT_HEADER

APP = """
import os

from openenv_trl.environment import Environment
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State


class Add(Action):
    amount: int = 1


class Total(Observation):
    total: int = 0
    pid: int = 0


class Counter(Environment[Add, Total, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.total = 0

    def reset(self, seed=None, episode_id=None):
        return Total(total=self.total, pid=os.getpid())

    def step(self, action, timeout_s=None, **kwargs):
        self.total += action.amount
        return Total(total=self.total, pid=os.getpid())

    @property
    def state(self):
        return State(step_count=self.total)


app = create_app(Counter, Add, Total, max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "100")))
"""

RESET = '{"type":"reset"}'
STEP = '{"type":"step","data":{"amount":1}}'


class Server:
    """A server process with two workers."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
            self.port = listening.getsockname()[1]
            command = [sys.executable, "-m", "openenv_trl.server", "counter:app", "--fd", str(listening.fileno())]
            self.process = subprocess.Popen(
                [*command, *options],
                pass_fds=[listening.fileno()],
                cwd=folder,
                env={**os.environ, "OPENENV_TRL_DRAIN_TIMEOUT_S": "0", **environment},
                stderr=subprocess.PIPE,
                text=True,
            )
        assert self.process.stderr is not None
        self.first_line = self.process.stderr.readline()
        # Read on, or a full pipe would stop the server.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def session(self, query: str = "", wait_s: float | None = None) -> Any:
        headers = {} if wait_s is None else {WAIT_HEADER: str(wait_s)}
        url = f"ws://127.0.0.1:{self.port}/ws{query}"
        return connect(url, additional_headers=headers, open_timeout=60, close_timeout=1, compression=None)

    def get(self, path: str) -> Any:
        return json.loads(self._ask("GET", path, None))

    def text(self, path: str) -> str:
        return self._ask("GET", path, None).decode()

    def rpc(self, method: str, **params: Any) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return json.loads(self._ask("POST", "/mcp", json.dumps(request)))

    def pid_of(self, worker: int) -> int:
        with self.session(f"?worker={worker}") as session:
            return say(session, RESET)["observation"]["pid"]

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def _ask(self, verb: str, path: str, body: str | None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(verb, path, body)
        try:
            return connection.getresponse().read()
        finally:
            connection.close()


def say(session: Any, message: str) -> Any:
    session.send(message)
    return json.loads(session.recv(timeout=60))["data"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counter")
    (folder / "counter.py").write_text(APP)
    return folder


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Server]]:
    with ExitStack() as stack:

        def start_one(*options: str, **environment: str) -> Server:
            server = Server(folder, *(options or ("--workers", "2")), **environment)
            stack.callback(server.process.wait, 30)
            stack.callback(server.process.terminate)
            return server

        yield start_one


def test_sessions_created_over_http_are_found_by_every_later_connection(start: Callable[..., Server]) -> None:
    # The public package loses 15 of these 20.
    server = start()
    names = [server.rpc("openenv/session/create")["result"]["session_id"] for _ in range(20)]
    pids: set[int] = set()
    for name in names:
        with server.session(f"?session_id={name}") as session:
            pids.add(say(session, RESET)["observation"]["pid"])
            assert say(session, STEP)["observation"]["total"] == 1
    for name in names:  # found again, and still where they were
        with server.session(f"?session_id={name}") as session:
            assert say(session, STEP)["observation"]["total"] == 2
    assert len(pids) == 2
    assert server.get("/capacity")["active_sessions"] == 20
    for name in names:
        assert server.rpc("openenv/session/close", session_id=name)["result"]["closed"] is True
    assert server.get("/capacity")["active_sessions"] == 0
    assert server.stop() == 0


def test_the_limit_is_the_whole_servers_also_when_all_come_at_once(start: Callable[..., Server]) -> None:
    server = start("--workers", "2", "--max-concurrent-envs", "7")
    with ExitStack() as stack, ThreadPoolExecutor(20) as pool:

        def open_one(_: int) -> str:
            session = stack.enter_context(server.session())
            with suppress(ConnectionClosed):  # it may be refused already, which is read below
                session.send(RESET)
            return json.loads(session.recv(timeout=60))["type"]

        kinds = list(pool.map(open_one, range(40)))
        assert (kinds.count("observation"), kinds.count("error")) == (7, 33)
        expected = {"active_sessions": 7, "max_sessions": 7, "available_slots": 0, "waiting": 0, "draining": False}
        assert server.get("/capacity") == {**expected, "workers": 2}


def test_a_client_that_waits_gets_the_slot_that_another_worker_frees(start: Callable[..., Server]) -> None:
    server = start("--workers", "2", "--max-concurrent-envs", "1")
    with server.session("?worker=0") as holder, server.session("?worker=1", wait_s=60) as waiting:
        say(holder, RESET)
        waiting.send(RESET)
        while server.get("/capacity")["waiting"] != 1:
            pass
        holder.close()
        assert json.loads(waiting.recv(timeout=60))["type"] == "observation"


def test_a_killed_workers_sessions_are_lost_and_said_to_be_and_their_slots_come_back(
    start: Callable[..., Server],
) -> None:
    server = start("--workers", "2", "--max-concurrent-envs", "4")
    pids = [server.pid_of(worker) for worker in range(2)]
    created = [server.rpc("openenv/session/create")["result"]["session_id"] for _ in range(2)]
    with server.session("?worker=0") as lost, server.session("?worker=1") as kept:
        say(lost, RESET), say(kept, RESET)
        assert server.get("/capacity")["available_slots"] == 0
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            lost.recv(timeout=60)
        while server.get("/capacity")["active_sessions"] != 2:
            pass
        assert say(kept, STEP)["observation"]["total"] == 1
        gone = next(name for name in created if name.endswith("w0"))
        with server.session(f"?session_id={gone}") as session:
            assert f"Unknown session_id: {gone}" in json.loads(session.recv(timeout=60))["data"]["message"]
        answer = server.rpc("tools/call", session_id=gone, name="add", arguments={})
        assert f"Unknown session_id: {gone}" in answer["error"]["message"]
        while server.pid_of(0) == pids[1]:
            pass  # not started again yet: its sibling stands in
        assert server.pid_of(0) not in pids
        assert say(kept, STEP)["observation"]["total"] == 2


def test_workers_end_with_their_parent_however_it_ends(start: Callable[..., Server]) -> None:
    server = start()
    watched = [os.pidfd_open(server.pid_of(worker)) for worker in range(2)]
    server.process.kill()
    for worker in watched:
        # The process is no child of this one: its descriptor becomes readable when it ends.
        assert select.select([worker], [], [], 30)[0]
        os.close(worker)


def test_the_number_of_workers_may_come_from_the_environment(start: Callable[..., Server]) -> None:
    server = start("--log-level", "info", OPENENV_TRL_WORKERS="2")
    assert server.first_line.endswith(f"Serving on http://127.0.0.1:{server.port} with 2 workers\n")
    assert server.get("/capacity")["workers"] == 2


def test_metrics_tell_the_workers_apart(start: Callable[..., Server]) -> None:
    server = start()
    with server.session("?worker=0") as first, server.session("?worker=1") as second:
        say(first, RESET), say(second, RESET)
        page = server.text("/metrics")
    for worker in range(2):
        assert f'openenv_sessions_opened_total{{transport="ws",worker="{worker}"}} 1.0' in page
    assert "\nopenenv_sessions_active 2.0" in page


@pytest.mark.parametrize(
    ("text", "words"),
    [("raise KeyError('table')", "KeyError: 'table'"), ("app = 7", "is a int, not an ASGI application")],
)
def test_an_application_that_cannot_be_served_ends_it_with_one_message(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    command = [sys.executable, "-m", "openenv_trl.server", "broken:app", "--workers", "2", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count(words) == 1


@pytest.mark.parametrize("number", ["none", "0", "-1"])
def test_a_number_of_workers_that_cannot_be_is_told(folder: Path, number: str) -> None:
    command = [sys.executable, "-m", "openenv_trl.server", "counter:app", "--port", "0"]
    environment = {**os.environ, "OPENENV_TRL_WORKERS": number}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "OPENENV_TRL_WORKERS" in done.stderr


def test_workers_that_uvicorn_starts_by_itself_are_warned_of(folder: Path) -> None:
    command = [sys.executable, "-m", "uvicorn", "counter:app", "--workers", "2", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert any("python -m openenv_trl.server TARGET --workers N" in line for line in process.stderr)
    finally:
        process.terminate()
        process.communicate(timeout=60)
