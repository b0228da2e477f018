"""A real server of the native wire, a peer written from its specification alone, and a line that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgpack
import numpy as np
import pytest
import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as serve_sockets

from openenv_trl.environment import Environment, tool
from openenv_trl.server import create_app
from openenv_trl.server.serving import ServerSettings, uvicorn_config
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State


class Move(Action):
    text: str = ""
    waits: bool = False
    deaf: bool = False
    raises: bool = False
    screen: bool = False
    data: bytes = b""
    size: int = 0
    odd: bool = False


class Seen(Observation):
    text: str = ""
    count: int = 0
    screen: Any = None
    data: bytes = b""


class Table(Environment[Move, Seen, State]):
    """Counts its steps. A step that waits does so until the table is let go."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    tables: list[Table]
    gate: asyncio.Event

    def __init__(self) -> None:
        self.steps = 0
        self.cancelled = 0
        self.closed = False
        self.waiting = threading.Event()
        self.let_go: Callable[[], None] = lambda: None
        Table.tables.append(self)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Seen:
        self.steps = 0
        return Seen(text=f"seed {seed}")

    def step(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        raise NotImplementedError

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Seen:
        return self.reset(seed, episode_id)

    async def step_async(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        self.steps += 1
        if action.raises:
            raise ValueError("the table fell over" + "!" * action.size)
        if action.waits:
            gate = asyncio.Event()
            self.let_go = _call(asyncio.get_running_loop().call_soon_threadsafe, gate.set)
            self.waiting.set()
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    if not action.deaf:
                        raise
        screen: Any = np.full((210, 160, 3), 7, dtype=np.uint8) if action.screen else None
        screen = {"of": [object()]} if action.odd else screen
        text = "x" * action.size if action.size else action.text
        return Seen(text=text, count=self.steps, reward=0.5, screen=screen, data=action.data, metadata={"k": 1})

    @tool
    def double(self, number: int) -> Seen:
        """Twice the number."""
        return Seen(count=2 * number)

    @property
    def state(self) -> State:
        return State(step_count=self.steps)

    def close(self) -> None:
        self.closed = True


def _call(function: Callable[..., Any], *args: Any) -> Callable[[], None]:
    return lambda: function(*args)


Serve = Callable[..., str]


@pytest.fixture
def tables() -> list[Table]:
    """The tables that servers have built, the oldest first."""
    Table.tables = []
    return Table.tables


@pytest.fixture(params=["picows", "asgi"])
def carried_by(request: pytest.FixtureRequest) -> str:
    """Who carries the sockets: this package's own process, or any ASGI server."""
    return request.param


@pytest.fixture
def serve(tables: list[Table], carried_by: str) -> Iterator[Serve]:
    """Serve tables until the test ends, and return the address."""
    with ExitStack() as stack:

        def start(app: Any = None, most: int = 8, **settings: Any) -> str:
            app = app or create_app(Table, Move, Seen, max_concurrent_envs=most, settings=AppSettings(**settings))
            listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
            given = ServerSettings(shutdown_grace_s=2, fast_sockets=carried_by == "picows")
            server = uvicorn.Server(uvicorn_config(app, given))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()

            def stop() -> None:
                for table in tables:
                    with contextlib.suppress(RuntimeError):
                        table.let_go()
                server.should_exit = True
                thread.join(20)
                assert not thread.is_alive()

            stack.callback(stop)
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield start


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


class Peer:
    """A client written with nothing but the specification: websockets, and another MessagePack library."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._frames: list[Any] = []

    async def send(self, *frames: Any) -> None:
        await self.connection.send(msgpack.packb(list(frames)))

    async def receive(self) -> Any:
        while not self._frames:
            message = await asyncio.wait_for(self.connection.recv(), 20)
            assert isinstance(message, bytes)
            self._frames = msgpack.unpackb(message, strict_map_key=False)
        return self._frames.pop(0)

    async def ask(self, *frame: Any) -> Any:
        await self.send(list(frame))
        return await self.receive()

    async def open(self, session: int = 1) -> dict[str, str]:
        answer = await self.ask(1, session, 1, {})
        assert answer[:3] == [19, session, 1]
        return answer[3]


@pytest.fixture
async def peer() -> AsyncIterator[Callable[..., Any]]:
    """Connect a peer, greeted and greeting."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(url: str, limit: int = 2**20) -> Peer:
            address = url.replace("http", "ws", 1) + "/ws"
            connection = await stack.enter_async_context(
                connect(address, subprotocols=["openenv.native.v1"], compression=None, max_size=None)  # type: ignore[list-item]
            )
            assert connection.subprotocol == "openenv.native.v1"
            made = Peer(connection)
            await made.send([0, {"max_message_bytes": limit}])
            greeting = await made.receive()
            assert greeting[0] == 0
            return made

        yield start


class Relay:
    """A line to a server that can be cut, as a network would."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self.target = (host, int(port))
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.connections = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def lead_nowhere(self) -> None:
        """Take connections, and bring them nowhere, until `target` is set again."""
        self.target = ("127.0.0.1", 1)

    def cut(self) -> None:
        """Break every connection, on both sides, without a word."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there_reader, there_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, there_writer]

        async def pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65_536):
                    sink.write(data)
                    await sink.drain()
            sink.transport.abort()

        await asyncio.gather(pour(reader, there_writer), pour(there_reader, writer))


@pytest.fixture
def relay() -> type[Relay]:
    """A line that can be cut."""
    return Relay
