"""A served environment ends when nobody renews its lease, however it is served and whatever its code does."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

TOKEN = "a-secret"
LEASE_S = 2.0
# For what is waited for on a machine that has other things to do.
LONG_S = 90.0

APP = """
    import ctypes, os, time
    from fastapi import FastAPI
    from openenv_trl.environment import Environment
    from openenv_trl.server import create_app
    from openenv_trl.types import Action, Observation, State

    class Game(Environment[Action, Observation, State]):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None):
            if os.environ.get("BLOCK") == "interpreter":
                ctypes.PyDLL(None).sleep(1000)
            return Observation(metadata={"pid": os.getpid(), "lease": [n for n in os.environ if "LEASE" in n]})

        async def reset_async(self, seed=None, episode_id=None):
            if os.environ.get("BLOCK") == "loop":
                time.sleep(1000)
            return self.reset()

        def step(self, action, timeout_s=None, **kwargs):
            return Observation()

        @property
        def state(self):
            return State()

    app = create_app(Game, Action, Observation, max_concurrent_envs=8)
    holder = FastAPI()
    holder.mount("/game", app)

    @holder.get("/health")
    def health():
        return {"status": "healthy"}
"""


class Server:
    """A server process that listens from the first moment."""

    def __init__(self, folder: Path, command: list[str], variables: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
            self.port = listening.getsockname()[1]
            self.process = subprocess.Popen(
                [sys.executable, *command, "--fd", str(listening.fileno())],
                pass_fds=[listening.fileno()],
                cwd=folder,
                env={**os.environ, "OPENENV_TRL_DRAIN_TIMEOUT_S": "60", **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=b"{}" if method == "POST" else None,
            headers={"Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=LONG_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def renew(self, token: str = TOKEN, secret: str | None = None) -> int:
        also = {} if secret is None else {"X-OpenEnv-Lease-Secret": secret}
        return self.ask("POST", "/lease", **{"X-OpenEnv-Lease": token, **also})[0]

    def log(self) -> str:
        """Wait for its end, and return what it wrote."""
        return self.process.communicate(timeout=LONG_S)[0]

    def wait_group_gone(self) -> None:
        """Wait until nothing that it started runs."""
        ends = time.monotonic() + LONG_S
        with suppress(ProcessLookupError):
            while time.monotonic() < ends:
                os.killpg(self.process.pid, 0)
                time.sleep(0.02)
            pytest.fail(f"processes of {self.process.args} live on")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process.wait()


OURS = ["-m", "openenv_trl.server", "game:app"]
WAYS = {
    "our-server": OURS,
    "our-server-mounted": ["-m", "openenv_trl.server", "game:holder"],
    "our-workers": [*OURS, "--workers", "2"],
    "uvicorn": ["-m", "uvicorn", "game:app"],
    "uvicorn-workers": ["-m", "uvicorn", "game:app", "--workers", "2"],
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    (tmp_path / "game.py").write_text(textwrap.dedent(APP))
    servers: list[Server] = []

    def begin(command: list[str] = OURS, lease_s: float | None = LEASE_S, **variables: str) -> Server:
        lease = {} if lease_s is None else {"OPENENV_TRL_LEASE_S": f"{lease_s}", "OPENENV_TRL_LEASE_TOKEN": TOKEN}
        servers.append(Server(tmp_path, command, {**lease, **variables}))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def test_a_server_that_nobody_renews_ends_by_itself_however_it_is_served(start):
    servers = {way: start(command) for way, command in WAYS.items()}
    for way, server in servers.items():
        log = server.log()
        assert "Nobody has renewed this server's lease for 2 s" in log, (way, log)
        server.wait_group_gone()


def test_a_server_that_is_renewed_outlives_its_lease(start):
    lease_s = 8.0  # longer than the pauses of a busy machine
    servers = {way: start(command, lease_s=lease_s) for way, command in WAYS.items()}

    def keep(server: Server) -> set[int]:
        assert server.ask("GET", "/health")[0] == 200
        ends = time.monotonic() + 1.5 * lease_s
        answers: set[int] = set()
        while time.monotonic() < ends:
            answers.add(server.renew())
            time.sleep(0.2)
        return answers

    with ThreadPoolExecutor(len(servers)) as pool:
        for way, answers in zip(servers, pool.map(keep, servers.values()), strict=True):
            assert answers == {204}, way
            assert servers[way].process.poll() is None, way


def test_a_server_whose_environment_blocks_ends_all_the_same(start):
    servers = {block: start(BLOCK=block) for block in ("loop", "interpreter")}
    connections: list[http.client.HTTPConnection] = []
    for server in servers.values():
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/reset", "{}", {"Content-Type": "application/json"})
        connections.append(connection)
    assert "Nobody has renewed" in servers["loop"].log()
    assert "game.py" in servers["interpreter"].log()  # where it stood
    for connection in connections:
        connection.close()


def test_a_server_that_never_comes_to_serve_ends(start, tmp_path):
    (tmp_path / "stuck.py").write_text("import time; time.sleep(1000)")
    server = start(["-m", "openenv_trl.server", "stuck:app"], OPENENV_TRL_LEASE_START_S="1")
    assert "The server did not serve within 1 s" in server.log()


def test_only_the_token_renews_and_nothing_else_is_told(start):
    server = start(lease_s=60.0, OPENENV_TRL_TOKEN="the-users-own")
    assert server.ask("GET", "/health")[0] == 200
    assert server.renew() == 204
    assert server.renew("wrong") == 403
    assert server.ask("POST", "/lease")[0] == 403
    assert server.ask("GET", "/lease")[0] == 405
    status, page = server.ask("GET", "/openapi.json", Authorization="Bearer the-users-own")
    assert status == 200
    assert b"lease" not in page


def test_wrong_tokens_do_not_keep_a_server_alive(start):
    server = start()
    assert server.ask("GET", "/health")[0] == 200
    with suppress(OSError, http.client.HTTPException):
        while server.process.poll() is None:
            server.renew("wrong")
    assert "Nobody has renewed" in server.log()


def test_an_environments_code_cannot_see_the_token(start):
    server = start(lease_s=60.0)
    status, body = server.ask("POST", "/reset")
    assert status == 200
    assert TOKEN.encode() not in body
    assert b"OPENENV_TRL_LEASE" not in body


@pytest.mark.parametrize("way", list(WAYS))
def test_after_the_first_renewal_the_environments_token_renews_no_more(start, way):
    server = start(WAYS[way], lease_s=60.0)
    assert server.ask("GET", "/health")[0] == 200
    assert server.renew() == 204  # an owner that knows no secret
    assert server.renew("wrong", "the-owners") == 403
    assert server.renew(TOKEN, "the-owners") == 204
    for _ in range(4):  # whichever worker answers
        assert server.renew() == 403
        assert server.renew(TOKEN, "anothers") == 403
        assert server.renew(TOKEN, "the-owners") == 204
        assert server.renew("", "the-owners") == 204


def test_workers_leave_no_file_when_they_end(start, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    server = start(WAYS["uvicorn-workers"], lease_s=60.0, TMPDIR=str(folder))
    assert server.ask("GET", "/health")[0] == 200
    assert [name for name in os.listdir(folder) if "lease" in name]
    server.process.terminate()
    server.log()
    server.wait_group_gone()
    assert not [name for name in os.listdir(folder) if "lease" in name]


def test_a_server_without_a_lease_has_no_path_and_no_thread(start):
    server = start(lease_s=None)
    assert server.ask("GET", "/health")[0] == 200
    assert server.ask("POST", "/lease", **{"X-OpenEnv-Lease": TOKEN})[0] == 404
    names = {Path(f"/proc/{server.process.pid}/task/{task}/comm") for task in _tasks(server.process.pid)}
    assert not any(name.read_text().strip() == "lease" for name in names)
    assert server.process.poll() is None


def _tasks(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}/task") if sys.platform == "linux" else []


def test_a_lease_that_cannot_be_read_ends_the_server_with_a_reason(start):
    server = start(OPENENV_TRL_LEASE_S="soon")
    assert "OPENENV_TRL_LEASE_S='soon' is no number of seconds" in server.log()
    assert server.process.returncode == 2
