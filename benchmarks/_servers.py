"""Servers to measure, each in a process of its own: the public package's, ours, and bare socket libraries.

The public package lives in a virtual environment of its own, ``.venv-openenv``. Both packages serve the same source,
``benchmarks/_served``: for ours, `PORTED` is what its import lines say instead.
"""

from __future__ import annotations

import atexit
import http.client
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal

ROOT = Path(__file__).parent.parent
PUBLIC_PYTHON = ROOT / ".venv-openenv" / "bin" / "python"
SOURCE = Path(__file__).parent / "_served"

Package = Literal["public", "ours"]

PORTED = ("from openenv.core", "from openenv_trl.compat")

_START_S = 90.0
_STOP_S = 20.0


@dataclass(frozen=True)
class Serving:
    """What to serve, and with what.

    Attributes:
        package: "public", "ours", or one of the libraries of `_limits.py`.
        environment: Its name in ``_served/apps.py``.
        execution: Ours only: where hooks run (``OPENENV_TRL_EXECUTION``); as the class says if empty.
        traced: Whether the server counts what Python objects hold, at ``/traced``. It is slower so.
    """

    package: Literal["public", "ours", "websockets", "picows"]
    environment: str = "echo"
    execution: str = ""
    traced: bool = False


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    url: str
    pid: int
    start_s: float


@contextmanager
def running(serving: Serving) -> Iterator[Server]:
    """Run a server until the end of the block."""
    port = free_port()
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(_command(serving, port), env=_variables(serving), stdout=log, stderr=log, cwd=ROOT)
        try:
            _wait_until_ready(process, port, log, healthy=serving.package in ("public", "ours"))
            yield Server(f"http://127.0.0.1:{port}", process.pid, time.perf_counter() - begin)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def python_of(package: str) -> str:
    """The interpreter that has the package installed."""
    if package != "public":
        return sys.executable
    if not PUBLIC_PYTHON.exists():
        raise SystemExit(
            f"{PUBLIC_PYTHON} is missing. Make it: python3 -m venv .venv-openenv && "
            ".venv-openenv/bin/pip install openenv==0.10.0"
        )
    return str(PUBLIC_PYTHON)


def variables_of(package: Package) -> dict[str, str]:
    """The environment variables with which a process of the package finds ``served``."""
    # Waiting for sessions to end would only delay the next server.
    return {**os.environ, "PYTHONPATH": f"{_tree(package)}{os.pathsep}{ROOT}", "OPENENV_TRL_DRAIN_TIMEOUT_S": "0"}


def public_versions() -> dict[str, str]:
    """Versions of what the public package runs on."""
    names = ["openenv", "fastmcp", "uvicorn", "websockets", "pydantic"]
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names}}}))"
    done = subprocess.run([python_of("public"), "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def allow_many_files() -> None:
    """Let this process, and those that it starts, have as many sockets as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@cache
def _tree(package: Package) -> Path:
    """A folder with the package ``served``, for the import path."""
    folder = Path(tempfile.mkdtemp(prefix="openenv-benchmark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(SOURCE, folder / "served", ignore=shutil.ignore_patterns("__pycache__"))
    if package == "ours":
        for path in (folder / "served").glob("*.py"):
            path.write_text(path.read_text().replace(*PORTED))
    return folder


def _command(serving: Serving, port: int) -> list[str]:
    python = python_of(serving.package)
    if serving.package == "public":
        where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        return [python, "-m", "uvicorn", "served.apps:app", *where]
    if serving.package == "ours":
        return [python, "-m", "openenv_trl.server", "served.apps:app", "--port", str(port), "--log-level", "warning"]
    return [python, str(Path(__file__).parent / "_limits.py"), serving.package, str(port)]


def _variables(serving: Serving) -> dict[str, str]:
    if serving.package not in ("public", "ours"):
        return dict(os.environ)
    variables = {**variables_of("public" if serving.package == "public" else "ours"), "SERVED": serving.environment}
    if serving.execution:
        variables["OPENENV_TRL_EXECUTION"] = serving.execution
    if serving.traced:
        variables["SERVED_TRACED"] = "1"
    return variables


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: BinaryIO, healthy: bool) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if healthy:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", "/health")
                connection.getresponse().read()
                connection.close()
            else:
                socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    log.seek(0)
    raise RuntimeError("The server did not come up: " + log.read().decode()[-2000:])
