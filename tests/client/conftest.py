"""Real servers to be a client of, and servers that misbehave as written."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as serve_sockets

from openenv_trl.client import EnvClient
from openenv_trl.environment import Environment, tool
from openenv_trl.server import create_app
from openenv_trl.server.serving import ServerSettings, uvicorn_config
from openenv_trl.types import Action, Observation, State


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serve an application until the test ends, and return its address."""
    with ExitStack() as stack:

        def start(app: Any) -> str:
            listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
            server = uvicorn.Server(uvicorn_config(app, ServerSettings(shutdown_grace_s=2)))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()

            def stop() -> None:
                server.should_exit = True
                thread.join(20)
                assert not thread.is_alive()

            stack.callback(stop)
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield start


@pytest.fixture(params=["auto", "openenv"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have every client that is not told otherwise speak this wire; our servers speak both."""
    defaults = EnvClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "wire", request.param)
    return request.param


@pytest.fixture
def scripted() -> Iterator[Callable[..., str]]:
    """Run a handler for each connection of a server that is not ours, and return its address."""
    with ExitStack() as stack:

        def start(handler: Callable[[ServerConnection], None], **options: Any) -> str:
            def handle(connection: ServerConnection) -> None:
                with contextlib.suppress(ConnectionClosed):
                    handler(connection)

            server = stack.enter_context(
                serve_sockets(handle, "127.0.0.1", 0, compression=None, close_timeout=1, **options)
            )
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.socket.getsockname()[1]}"

        yield start


class Say(Action):
    text: str = ""
    raises: bool = False
    waits: bool = False


class Heard(Observation):
    text: str = ""


class Parrot(Environment[Say, Heard, State]):
    """Repeats what it hears. A step that waits does so until `gate` is set."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    gate = threading.Event()
    waiting = threading.Event()

    def __init__(self) -> None:
        self.heard = 0
        self.arguments: dict[str, Any] = {}

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Heard:
        self.heard = 0
        self.arguments = {"seed": seed, "episode_id": episode_id, **kwargs}
        return Heard(text="ready", metadata={"arguments": self.arguments})

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Heard:
        self.heard += 1
        if action.raises:
            raise ValueError("it bit me")
        if action.waits:
            self.waiting.set()
            self.gate.wait(30)
        return Heard(text=action.text, reward=0.5, done=action.text == "bye")

    @property
    def state(self) -> State:
        return State(step_count=self.heard)


class Trained(Parrot):
    @tool
    def repeat(self, text: str) -> Heard:
        """Say it again."""
        return Heard(text=text)


@pytest.fixture
def parrot(serve: Callable[[Any], str]) -> Iterator[str]:
    Parrot.gate.clear()
    Parrot.waiting.clear()
    yield serve(create_app(Parrot, Say, Heard, max_concurrent_envs=8))
    Parrot.gate.set()


@pytest.fixture
def lonely_parrot(serve: Callable[[Any], str]) -> Iterator[str]:
    Parrot.gate.clear()
    Parrot.waiting.clear()
    yield serve(create_app(Parrot, Say, Heard))
    Parrot.gate.set()


@pytest.fixture
def trained_parrot(serve: Callable[[Any], str]) -> str:
    return serve(create_app(Trained, Say, Heard))


@pytest.fixture
def parrot_waits() -> Callable[[], bool]:
    """Wait until some parrot's step is running."""
    return lambda: Parrot.waiting.wait(30)


@pytest.fixture
def let_parrot_go() -> Callable[[], None]:
    return Parrot.gate.set
