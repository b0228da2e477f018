"""``python -m openenv_trl.server`` as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

SERVER = [sys.executable, "-m", "openenv_trl.server"]

APP = """
    import os, time
    from openenv_trl.environment import Environment
    from openenv_trl.server import create_app
    from openenv_trl.types import Action, Observation, State

    class Wait(Action):
        seconds: float = 0

    class Game(Environment[Wait, Observation, State]):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None):
            return Observation()

        def step(self, action, timeout_s=None, **kwargs):
            print("stepping", flush=True)
            time.sleep(action.seconds)
            return Observation()

        @property
        def state(self):
            return State()

        def close(self):
            print("closed", flush=True)

    app = create_app(Game, Wait, Observation, max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "2")))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "waiting_game"
    (folder / "server").mkdir(parents=True)
    for name in ("__init__.py", "server/__init__.py"):
        (folder / name).touch()
    (folder / "openenv.yaml").write_text("app: server.app:app\n")
    (folder / "server" / "app.py").write_text(textwrap.dedent(APP))
    return folder


class Process:
    """A server process on an inherited socket: it can be connected to from the first moment on."""

    def __init__(self, package: Path, *options: str) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        command = [*SERVER, str(package), "--fd", str(listening.fileno()), *options]
        self.process = subprocess.Popen(
            command,
            pass_fds=[listening.fileno()],
            env={**os.environ, "OPENENV_TRL_DRAIN_TIMEOUT_S": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        listening.close()

    def socket(self) -> Any:
        return connect(f"ws://127.0.0.1:{self.port}/ws", open_timeout=60, close_timeout=1, compression=None)

    def stop(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def start(package: Path) -> Iterator[Callable[..., Process]]:
    with contextlib.ExitStack() as stack:

        def start_one(*options: str) -> Process:
            process = Process(package, *options)
            stack.callback(process.process.kill)
            return process

        yield start_one


def test_an_inherited_socket_is_served_and_sigterm_ends_it_with_open_sessions(
    start: Callable[..., Process], ask: Callable[..., str]
) -> None:
    server = start()
    with server.socket() as first, server.socket() as second:
        assert json.loads(ask(first, '{"type":"reset"}'))["type"] == "observation"
        assert json.loads(ask(second, '{"type":"state"}'))["type"] == "state"
        status, out, err = server.stop()
    assert (status, out.count("closed")) == (0, 2), err


def test_sigterm_ends_it_though_an_environment_hangs(start: Callable[..., Process]) -> None:
    server = start()
    with server.socket() as connection:
        connection.send('{"type":"step","data":{"seconds":3600}}')
        assert server.process.stdout is not None
        assert server.process.stdout.readline() == "stepping\n"
        status, _, err = server.stop()
    assert status == 0, err
    assert "the step of Game did not end in time" in err


def test_the_number_of_sessions_reaches_the_application(start: Callable[..., Process], ask: Callable[..., str]) -> None:
    server = start("--max-concurrent-envs", "1")
    with server.socket() as first, server.socket() as second:
        assert json.loads(ask(first, '{"type":"state"}'))["type"] == "state"
        assert json.loads(second.recv(timeout=30))["data"]["max_sessions"] == 1


def test_messages_are_not_compressed(start: Callable[..., Process]) -> None:
    server = start()
    url = f"ws://127.0.0.1:{server.port}/ws"
    with connect(url, open_timeout=60, close_timeout=1, compression="deflate") as connection:
        assert connection.response is not None
        assert "Sec-WebSocket-Extensions" not in connection.response.headers


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["nowhere"], "neither a folder nor 'module:attribute'"),
        (["{package}", "--fd", "987"], "--fd 987 is not an inherited socket"),
        (["{package}", "--fd", "-5"], "--fd -5 is not an inherited socket"),
        (["{package}", "--port", "99999"], "--port 99999 is no port: give one from 1 to 65535, or 0"),
        (["{package}", "--port", "-1"], "--port -1 is no port"),
        (["{package}", "--host", "a..b"], "Choose another --host or --port"),
        (["{package}", "--max-concurrent-envs", "0"], "0 is too few"),
        (["{package}", "--port", "{taken}"], "Choose another --host or --port"),
        (["{package}", "--host", "no.such.host.invalid"], "Choose another --host or --port"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_sentence(package: Path, options: list[str], text: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        known = {"package": package, "taken": taken.getsockname()[1]}
        command = [*SERVER, *(option.format(**known) for option in options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


BROKEN_APPS = {
    "raises": ("TABLE = {}\nTABLE['missing']\n", ["KeyError: 'missing'", "TABLE['missing']", "server/app.py"]),
    "syntax": ("app = (\n", ["SyntaxError: '(' was never closed", "server/app.py"]),
    "dependency": ("import no_such_dependency\n", ["No module named 'no_such_dependency'"]),
    "because": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise OSError('no table') from error\n",
        ["ZeroDivisionError", "direct cause", "OSError: no table"],
    ),
    "misuse": (
        "from openenv_trl.server import create_app\nfrom openenv_trl.types import Action, Observation\n"
        "app = create_app(object(), Action, Observation)\n",
        ["app = create_app(object(), Action, Observation)", "TypeError: env must be a callable"],
    ),
}


@pytest.mark.parametrize(("text", "words"), BROKEN_APPS.values(), ids=BROKEN_APPS)
def test_an_application_that_raises_on_import_is_shown_with_its_own_lines_only(
    package: Path, text: str, words: list[str]
) -> None:
    (package / "server" / "app.py").write_text(text)
    command = [*SERVER, str(package), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: importing {package} failed:\n")
    for word in words:
        assert word in done.stderr
    assert "importlib" not in done.stderr
    assert f"openenv_trl{os.sep}server{os.sep}" not in done.stderr


def test_a_number_of_sessions_that_the_application_does_not_read_is_told(
    package: Path, start: Callable[..., Process], ask: Callable[..., str]
) -> None:
    app = package / "server" / "app.py"
    app.write_text(app.read_text().replace('int(os.environ.get("MAX_CONCURRENT_ENVS", "2"))', "3"))
    server = start("--max-concurrent-envs", "7")
    with server.socket() as connection:
        ask(connection, '{"type":"reset"}')
        _, _, err = server.stop()
    assert "--max-concurrent-envs=7 has no effect: the application allows 3" in err


def test_a_number_of_sessions_that_the_application_reads_is_not_warned_of(
    start: Callable[..., Process], ask: Callable[..., str]
) -> None:
    server = start("--max-concurrent-envs", "7")
    with server.socket() as connection:
        ask(connection, '{"type":"reset"}')
        _, _, err = server.stop()
    assert "has no effect" not in err


@pytest.mark.parametrize(
    ("host", "token", "owner", "told"),
    [
        ("0.0.0.0", "", "", 1),
        ("0.0.0.0", "secret", "", 0),
        ("127.0.0.1", "", "", 0),
        ("0.0.0.0", "", "a-provider-that-published-it-on-loopback", 0),
    ],
)
def test_a_server_that_others_reach_without_a_token_says_so_once(
    package: Path, host: str, token: str, owner: str, told: int
) -> None:
    command = [*SERVER, str(package), "--host", host, "--port", "0"]
    environment = {**os.environ, "OPENENV_TRL_TOKEN": token, "OPENENV_TRL_OWNER": owner}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        lines: list[str] = []
        assert server.stderr is not None
        try:
            for line in server.stderr:
                lines.append(line)
                if "Serving on" in line:
                    break
        finally:
            server.terminate()
    assert "Serving on" in lines[-1]
    assert "".join(lines).count("set OPENENV_TRL_TOKEN") == told


def test_no_token_is_in_the_log_at_any_level(package: Path, tmp_path: Path) -> None:
    token, listening = "trainer-secret-0123456789", socket.create_server(("127.0.0.1", 0))
    port, log = listening.getsockname()[1], tmp_path / "log"
    command = [*SERVER, str(package), "--fd", str(listening.fileno()), "--log-level", "debug"]
    environment = {**os.environ, "OPENENV_TRL_TOKEN": token}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, pass_fds=[listening.fileno()], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    listening.close()
    try:
        head = {"Authorization": f"Bearer {token}"}
        with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=head, open_timeout=60) as opened:
            opened.send(json.dumps({"type": "state"}))
            opened.recv(timeout=60)
        for path, headers in (("/mcp", head), ("/nowhere", head), ("/ws", {"Authorization": f"Bearer {token}x"})):
            with (
                contextlib.suppress(InvalidStatus),
                connect(f"ws://127.0.0.1:{port}{path}", additional_headers=headers),
            ):
                pass
        for query, headers in (("", head), (f"?token={token}", {})):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/state{query}", headers=headers)
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=60):
                pass
    finally:
        process.terminate()
        process.wait(30)
    written = log.read_text()
    assert "/state" in written
    assert token not in written
