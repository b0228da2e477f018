"""Environments for agents, and the SDK's own client to act in them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import httpx
import pytest

from openenv_trl.environment import Environment, tool
from openenv_trl.errors import SessionStateError
from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.progress import report_progress
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State

pytest.importorskip("mcp")


class Seen(Observation):
    text: str = ""


class Counter(Environment[Action, Observation, State]):
    """Counts for one agent."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    built: ClassVar[list[Counter]] = []
    hanging: ClassVar[threading.Event] = threading.Event()
    let_go: ClassVar[threading.Event] = threading.Event()

    def __init__(self) -> None:
        self.count = 0
        self.resets: list[dict[str, Any]] = []
        self.closed = False
        self.cancelled = 0
        self.built.append(self)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Seen:
        self.count = seed or 0
        self.resets.append({"seed": seed, "episode_id": episode_id, **kwargs})
        return Seen(text=f"begin at {self.count}", reward=0.5, metadata={"answer": "secret-answer"})

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        self.count += 100
        return Seen(text=f"stepped to {self.count}", reward=1.0)

    @property
    def state(self) -> State:
        return State(step_count=self.count)

    def close(self) -> None:
        self.closed = True

    @tool
    def add(self, number: int) -> int:
        """Add to the count.

        And return it.
        """
        self.count += number
        return self.count

    @tool
    def look(self) -> Seen:
        """Look at the count."""
        return Seen(text=str(self.count), reward=0.25, metadata={"answer": "secret-answer"})

    @tool
    def finish(self) -> Seen:
        """End the episode."""
        return Seen(text="finished", reward=1.0, done=True)

    @tool
    def go_on(self) -> str:
        """Refuse, as an environment does after the end of its episode."""
        raise SessionStateError("The hand is over. Call reset.", phase="step")

    @tool
    async def hang(self) -> str:
        """Wait for ever."""
        self.hanging.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        raise AssertionError

    @tool
    def wait(self) -> str:
        """Wait, in a thread, until a test lets go."""
        self.hanging.set()
        assert self.let_go.wait(30)
        return "waited"

    @tool
    def build(self, parts: int) -> str:
        """Report each part, from a thread."""
        for part in range(1, parts + 1):
            report_progress(part, parts, f"part {part}")
        return "built"

    @tool
    async def build_async(self, parts: int) -> str:
        """Report each part, on the event loop."""
        for part in range(1, parts + 1):
            report_progress(part, parts)
            await anyio.lowlevel.checkpoint()
        return "built"

    @tool
    def shape(self) -> dict[str, Any]:
        """Return something with a shape."""
        return {"sides": 3, "names": ["a", "b"], "inner": {"deep": None}}

    @tool
    def text(self) -> str:
        """Return text."""
        return "plain words"

    @tool
    def break_down(self) -> str:
        """Raise."""
        raise RuntimeError("the machine broke")

    @tool
    def return_nonsense(self) -> object:
        """Return what JSON cannot say."""
        return object()


class Unlocking(MCPEnvironment):
    """Has another tool once its door is open."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()

        @self.tool()
        def open_door() -> str:
            """Open the door."""
            self.tool()(treasure)
            return "open"

        def treasure() -> int:
            """Take the treasure."""
            return 100

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


class Plain(Environment[Action, Observation, State]):
    """No tools."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


class BadStart(Plain):
    """Fails where it is told to."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    where: ClassVar[str] = "reset"

    def __init__(self) -> None:
        if self.where == "constructor":
            raise ValueError("no such game")

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        raise ValueError("no such level")


class Agent:
    """The SDK's client, whose answers are dicts with the protocol's own names: those are the same in 1.x and 2.x."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def initialize(self) -> dict[str, Any]:
        return _plain(await self._session.initialize())

    async def send_ping(self) -> dict[str, Any]:
        return _plain(await self._session.send_ping())

    async def list_tools(self) -> list[dict[str, Any]]:
        return _plain(await self._session.list_tools())["tools"]

    async def call_tool(self, name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
        return _plain(await self._session.call_tool(name, arguments, **more))


class Stage:
    """Environments, a server for them, and agents."""

    counter = Counter
    unlocking = Unlocking
    plain = Plain
    bad_start = BadStart
    token, agent_token = "trainer-secret-0123456789", "agent-secret-0123456789"
    both = "application/json, text/event-stream"
    initialize: ClassVar[dict[str, Any]] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    ping: ClassVar[dict[str, Any]] = {"jsonrpc": "2.0", "id": 2, "method": "ping"}

    def __init__(self, serve: Callable[[Any], Any]) -> None:
        self._serve = serve
        self.app: Any = None

    def serve(self, environment: Any = Counter, **arguments: Any) -> str:
        """Serve an environment, and return the address."""
        self.app = create_app(environment, Action, Observation, **{"max_concurrent_envs": 4, **arguments})
        return self._serve(self.app).address

    def serve_with_tokens(self) -> str:
        variables = {"OPENENV_TRL_TOKEN": self.token, "OPENENV_TRL_AGENT_TOKEN": self.agent_token}
        return self.serve(settings=AppSettings.from_environment(variables))

    @property
    def protocol_error(self) -> type[Exception]:
        """What the SDK's client raises where the answer is an error."""
        from mcp.shared import exceptions

        return getattr(exceptions, "MCPError", None) or getattr(exceptions, "McpError")  # noqa: B009 - of 2.x, of 1.x

    @property
    def free_slots(self) -> int:
        return self.app.state.session_host.status.available_slots

    @property
    def agents(self) -> int:
        return self.app.state.mcp_protocol.sessions

    @contextlib.asynccontextmanager
    async def agent(
        self, address: str, query: str = "", *, token: str | None = None, hears: Any = None
    ) -> AsyncGenerator[Any]:
        """The SDK's client, which has not said hello yet."""
        from mcp.client.session import ClientSession
        from mcp.client.streamable_http import streamable_http_client

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with contextlib.AsyncExitStack() as stack:
            http = await stack.enter_async_context(_http_of_the_sdk()(headers=headers, trust_env=False, timeout=60))
            url = f"http://{address}/mcp{query}"
            read, write, *_ = await stack.enter_async_context(streamable_http_client(url, http_client=http))
            yield Agent(await stack.enter_async_context(ClientSession(read, write, message_handler=hears)))

    @contextlib.asynccontextmanager
    async def raw(
        self, address: str, query: str = "", **headers: str
    ) -> AsyncGenerator[tuple[httpx.AsyncClient, dict[str, str]]]:
        """A session without the SDK, for what its client cannot be made to do."""
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=60) as http:
            headers = {"Accept": self.both, **headers}
            answer = await http.post(f"/mcp{query}", headers=headers, json=self.initialize)
            assert answer.status_code == 200, answer.text
            headers |= {"Mcp-Session-Id": answer.headers["mcp-session-id"], "Mcp-Protocol-Version": "2025-06-18"}
            initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await http.post("/mcp", headers=headers, json=initialized)).status_code == 202
            yield http, headers

    @staticmethod
    def texts(result: Any) -> list[str]:
        return [content["text"] for content in result["content"]]

    @staticmethod
    async def until(condition: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not condition():  # noqa: ASYNC110 - another thread's work has no event
                await anyio.sleep(0.01)


@pytest.fixture
def stage(serve: Callable[[Any], Any]) -> Iterator[Stage]:
    Counter.built.clear()
    Counter.hanging.clear()
    Counter.let_go.clear()
    yield Stage(serve)
    Counter.let_go.set()


def _plain(answer: Any) -> dict[str, Any]:
    return answer.model_dump(by_alias=True, mode="json")


def _http_of_the_sdk() -> Any:
    try:
        import httpx2
    except ImportError:
        return httpx.AsyncClient
    return httpx2.AsyncClient
