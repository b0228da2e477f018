"""Clients that come back to a server of several workers reach the one that has their session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from openenv_trl.client import GenericEnvClient

pytestmark = pytest.mark.anyio

APP = """
from openenv_trl.environment import Environment, tool
from openenv_trl.server import create_app
from openenv_trl.types import CallToolAction, Observation, State


class Counter(Environment[CallToolAction, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.total = 0

    def reset(self, seed=None, episode_id=None):
        return Observation()

    def step(self, action, timeout_s=None, **kwargs):
        return Observation()

    @tool
    def add(self, amount: int) -> int:
        "Add to the total."
        self.total += amount
        return self.total

    @property
    def state(self):
        return State(step_count=self.total)


app = create_app(Counter, CallToolAction, Observation, max_concurrent_envs=100)
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("tools")
    (folder / "tools.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "openenv_trl.server", "tools:app", "--workers", "2"]
        environment = {**os.environ, "OPENENV_TRL_DRAIN_TIMEOUT_S": "0"}
        process = subprocess.Popen(
            [*command, "--fd", str(listening.fileno())],
            pass_fds=[listening.fileno()],
            cwd=folder,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        # Said once both are up: before that, all clients are those of the one that was faster.
        assert any("with 2 workers" in line for line in process.stderr)
        threading.Thread(target=process.stderr.read, daemon=True).start()  # or a full pipe would stop the server
        yield listening.getsockname()[1]
        process.terminate()
        process.wait(60)


class Road:
    """A way to the server that can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pairs: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for each in pairs:
            with contextlib.suppress(OSError):  # its other end closed it meanwhile
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._pairs += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65_536):
                other.sendall(data)
        except OSError:
            pass
        finally:
            for each in (one, other):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
async def road(port: int) -> AsyncIterator[Road]:
    built = Road(port)
    yield built
    built.close()


async def test_a_session_of_the_native_wire_is_taken_up_again_in_its_worker(road: Road) -> None:
    async with GenericEnvClient(road.url, wire="native") as env:
        await env.reset()
        for number in range(1, 9):
            # Were the worker left to chance, the odds to come back eight times would be 1 to 255.
            result = await env.step({"tool_name": "add", "arguments": {"amount": 1}})
            assert result.observation["result"]["data"] == number
            road.cut()


async def test_the_sessions_of_one_client_are_spread_over_the_workers(port: int) -> None:
    clients = [GenericEnvClient(f"http://127.0.0.1:{port}", wire="native") for _ in range(10)]
    await asyncio.gather(*(client.connect() for client in clients))
    links: list[Any] = [client._session._link for client in clients]
    workers = [link._connection.worker for link in links]
    assert sorted(workers) == [0] * 5 + [1] * 5
    assert len({id(link._connection) for link in links}) == 2
    await asyncio.gather(*(client.reset() for client in clients))
    await asyncio.gather(*(client.close() for client in clients))


async def test_an_agents_session_is_found_from_every_connection(port: int) -> None:
    pytest.importorskip("mcp")
    import httpx

    url = f"http://127.0.0.1:{port}/mcp"
    accept = {"accept": "application/json, text/event-stream"}
    opening = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    for _ in range(4):
        async with httpx.AsyncClient(timeout=60) as client:
            begun = await client.post(url, json=_request("initialize", opening), headers=accept)
        assert begun.status_code == 200, begun.text
        headers = {**accept, "mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        for number in range(1, 5):
            async with httpx.AsyncClient(timeout=60) as client:  # a connection of its own
                called = await client.post(
                    url, json=_request("tools/call", {"name": "add", "arguments": {"amount": 1}}), headers=headers
                )
            assert called.status_code == 200, called.text
            assert f'"text":"{number}"' in called.text.replace('": "', '":"')


def _request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
