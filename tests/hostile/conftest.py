"""Servers to be treated badly: one for each library that carries their sockets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("hostile_process")

from hostile_process import LIMIT, ServerProcess  # noqa: E402 - found by the path above

SETTINGS = {
    "OPENENV_TRL_MAX_MESSAGE_BYTES": str(LIMIT),
    "OPENENV_TRL_PING_INTERVAL_S": "1",
    "OPENENV_TRL_HEAD_TIMEOUT_S": "2",
    "OPENENV_TRL_RESUME_TIMEOUT_S": "1",
    "OPENENV_TRL_MAX_WAITING": "500",
    "MAX_CONCURRENT_ENVS": "64",
}
UVICORN = (
    "import socket, uvicorn, hostile_game; uvicorn.Server(uvicorn.Config(hostile_game.app, ws='websockets', "
    f"log_level='warning', ws_max_size={LIMIT})).run(sockets=[socket.socket(fileno=FD)])"
)


@pytest.fixture(scope="session", params=["own", "uvicorn"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server process: this package's own, and the same application under plain uvicorn."""
    yield from started(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """This package's own server process."""
    yield from started("own", tmp_path_factory)


def started(carrier: str, tmp_path_factory: Any) -> Iterator[ServerProcess]:
    command = [sys.executable, "-c", UVICORN.replace("FD", "{fd}")] if carrier == "uvicorn" else None
    process = ServerProcess(
        tmp_path_factory.mktemp(carrier) / "log", settings=SETTINGS, command=command, carrier=carrier
    )
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def well(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test: others are served at once, every slot is free, nothing is left in memory or in the log."""
    name = "server" if "server" in request.fixturenames else "own_server"
    process: ServerProcess = request.getfixturevalue(name)
    process.forget_peak()
    before, tracebacks = process.memory_mib(), len(process.tracebacks())
    yield
    process.is_well_after(before, tracebacks)
