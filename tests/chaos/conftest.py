"""Real server processes, a bell that their environments ring, and an engine over them."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from openenv_trl.client import GenericEnvClient, fetch_promises, fetch_schema
from openenv_trl.providers import ProcessProvider, SessionPool
from openenv_trl.rollout import RolloutEngine, RolloutLimits, Task

HERE = Path(__file__).parent

_spec = importlib.util.spec_from_file_location("rollout_fixtures", HERE.parent / "rollout" / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_rollout = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_rollout)
tokenizer, say, tool_call = _rollout.tokenizer, _rollout.say, _rollout.tool_call


class Ringing:
    """One environment that waits for an answer."""

    def __init__(self, stream: anyio.abc.SocketStream, pid: int) -> None:
        self.stream, self.pid = stream, pid

    async def answer(self) -> None:
        """Let it go on, where it still is."""
        try:
            await self.stream.send(b".")
            await self.stream.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass


class Bell:
    """What the servers' environments ring."""

    def __init__(self, address: str, rung: Any) -> None:
        self.address = address
        self._rung = rung

    async def next(self) -> Ringing:
        """The next environment that rings."""
        return await self._rung.receive()

    async def several(self, count: int) -> list[Ringing]:
        """So many of them."""
        return [await self.next() for _ in range(count)]


@pytest.fixture
async def bell() -> AsyncGenerator[Bell]:
    send, receive = anyio.create_memory_object_stream[Ringing](1000)

    async def rung(stream: anyio.abc.SocketStream) -> None:
        words = (await stream.receive()).decode().split()
        await send.send(Ringing(stream, int(words[0])))
        await anyio.sleep_forever()  # the socket is closed with its task

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with send, receive, listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, rung)
        yield Bell(f"127.0.0.1:{port}", receive)
        group.cancel_scope.cancel()


@pytest.fixture
async def serve(bell: Bell) -> AsyncGenerator[Callable[..., Awaitable[ProcessProvider]]]:
    """Starts servers of an application of `rooms`."""
    async with AsyncExitStack() as stack:

        async def start(app: str = "table", **settings: Any) -> ProcessProvider:
            provider = ProcessProvider(
                f"rooms:{app}", cwd=HERE, env_vars={"CHAOS_BELL": bell.address}, stop_grace_s=0.2, **settings
            )
            return await stack.enter_async_context(provider)

        yield start


@pytest.fixture
def engine_over(tokenizer: Any) -> Callable[..., Any]:
    """An engine over servers; no session may be left in use."""

    @asynccontextmanager
    async def open_engine(urls: list[str], strategies: Any = None, **limits: Any) -> AsyncGenerator[RolloutEngine]:
        async def connect(url: str) -> GenericEnvClient:
            client = GenericEnvClient(url, connect_timeout_s=2.0, message_timeout_s=5.0)
            await client.connect()
            return client

        patience_s = limits.pop("server_patience_s", 2.0)
        async with SessionPool(urls, connect, sessions_per_server=16, server_patience_s=patience_s) as pool:
            yield RolloutEngine(
                pool,
                tokenizer,
                limits=RolloutLimits(**{"retry_delay_s": 0.05, "connect_timeout_s": 10.0, **limits}),
                strategies=strategies,
                fetch_schema=fetch_schema,
                fetch_promises=fetch_promises,
            )
            assert pool.metrics().in_use == 0

    return open_engine


@pytest.fixture
def tasks() -> Callable[..., list[Task]]:
    """A task for each fault."""

    def make(*faults: str, at: int = 2, group: Any = None) -> list[Task]:
        prompt = [{"role": "user", "content": "Play."}]
        return [
            Task(prompt, {"seed": index, "fault": fault, "at": at}, group=group, index=index)
            for index, fault in enumerate(faults)
        ]

    return make
