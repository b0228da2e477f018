"""Real servers on real sockets, and raw WebSockets to talk to them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from websockets.sync.client import ClientConnection, connect

from openenv_trl.server.serving import ServerSettings, uvicorn_config


@dataclass
class Served:
    """A server in a thread of this process, so that a test can reach into its environments."""

    address: str
    uvicorn_server: uvicorn.Server
    stack: ExitStack

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def socket(self, path: str = "/ws") -> ClientConnection:
        return self.stack.enter_context(connect(f"ws://{self.address}{path}", compression=None, close_timeout=1))


def ask(connection: ClientConnection, text: str | bytes) -> str:
    connection.send(text)
    answer = connection.recv(timeout=30)
    assert isinstance(answer, str)
    return answer


@pytest.fixture(name="ask")
def ask_fixture() -> Callable[[ClientConnection, str | bytes], str]:
    """Send a message and return its answer."""
    return ask


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Served]]:
    """Serve an application until the test ends."""
    with ExitStack() as stack:

        def start(app: Any) -> Served:
            listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
            config = uvicorn_config(app, ServerSettings(shutdown_grace_s=2))
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()

            def stop() -> None:
                server.should_exit = True
                thread.join(20)
                assert not thread.is_alive()

            stack.callback(stop)
            sockets = stack.enter_context(ExitStack())
            host, port = listening.getsockname()[:2]
            return Served(f"{host}:{port}", server, sockets)

        yield start
