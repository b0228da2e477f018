"""The engine over real parts: our server on a real socket, the client, the pool, and environments that misbehave."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio
import pytest
import uvicorn

from openenv_trl.client import GenericEnvClient, fetch_schema
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ConnectionFailedError
from openenv_trl.providers import SessionPool
from openenv_trl.rollout import EndReason, RolloutEngine, RolloutLimits, Trajectory
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State

pytestmark = pytest.mark.anyio

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'


class Message(Observation):
    message: str = ""


class Table(Environment[Action, Message, State]):
    """Three hits end a game, unless the task says what goes wrong."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    released: ClassVar[threading.Event]
    barrier: ClassVar[threading.Barrier]
    broken_once: ClassVar[set[int]]

    def __init__(self) -> None:
        self._fault = ""
        self._hits = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, fault: str = "", **_: Any) -> Message:
        self._fault, self._hits, self._seed = fault, 0, seed or 0
        if fault == "reset raises":
            raise ValueError("no such table")
        return Message(message=f"Table {seed}.")

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Message:
        raise NotImplementedError

    @tool
    def hit(self) -> Message:
        """Take a card."""
        self._hits += 1
        done = self._hits == 3
        if self._fault == "raises" or (self._fault == "raises once" and self._seed not in self.broken_once):
            self.broken_once.add(self._seed)
            raise ZeroDivisionError("division by zero")
        if self._fault == "hangs":
            self.released.wait(60)
        if self._fault == "meets":
            self.barrier.wait(60)
        reward = math.nan if self._fault == "nan" and done else 1.0
        if self._fault == "only nan":
            reward = math.nan if done else None
        return Message(message=f"Hit {self._hits}.", reward=reward, done=done)

    @property
    def state(self) -> State:
        return State(step_count=self._hits)


class Move(Action):
    direction: int


class Line(Environment[Move, Message, State]):
    """An environment without tools: the sum of the directions must reach two."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Message:
        self._at = 0
        return Message(message="At 0.")

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Message:
        self._at += action.direction
        return Message(message=f"At {self._at}.", reward=float(self._at), done=self._at >= 2)

    @property
    def state(self) -> State:
        return State()


class Server:
    """A real server in a thread, that a test can stop in the middle of things."""

    def __init__(self, app: Any) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    Table.released, Table.broken_once = threading.Event(), set()
    servers: list[Server] = []

    def start(environment: Any = Table, action: Any = Action, sessions: int = 64) -> Server:
        servers.append(Server(create_app(environment, action, Message, max_concurrent_envs=sessions)))
        return servers[-1]

    yield start
    Table.released.set()
    for server in servers:
        server.stop()


@asynccontextmanager
async def engine_over(tokenizer: Any, *urls: str, sessions: int = 64, **limits: Any) -> AsyncGenerator[Any]:
    async def connect(url: str) -> GenericEnvClient:
        client = GenericEnvClient(url)
        await client.connect()
        return client

    async with SessionPool(urls, connect, sessions_per_server=sessions, server_patience_s=1.0) as pool:
        settings = RolloutLimits(**{"retry_delay_s": 0.0, **limits})
        engine = RolloutEngine(pool, tokenizer, limits=settings, fetch_schema=fetch_schema)
        yield engine
        assert pool.metrics().in_use == 0


def tasks_with(tasks: Any, *faults: str) -> list[Any]:
    made = tasks(len(faults))
    for task, fault in zip(made, faults, strict=True):
        task.reset["fault"] = fault
    return made


def ends(trajectories: list[Trajectory]) -> list[str]:
    return [t.end_reason.value for t in trajectories]


async def test_steps_of_all_sessions_run_at_the_same_time(serve: Any, tokenizer: Any, say: Any, tasks: Any) -> None:
    # Each step waits in the server until all have arrived: a rollout that stepped one by one would never end.
    count = 24
    Table.barrier = threading.Barrier(count)
    async with engine_over(tokenizer, serve().url) as engine:
        with anyio.fail_after(60):
            trajectories = await engine.run(tasks_with(tasks, *["meets"] * count), say(HIT))
    assert ends(trajectories) == ["done"] * count
    assert [t.reward for t in trajectories] == [3.0] * count
    assert [t.first_observation for t in trajectories] == [f"Table {index}." for index in range(count)]


async def test_a_reward_that_json_has_not_is_invalid_though_it_is_the_only_one(
    serve: Any, tokenizer: Any, say: Any, tasks: Any
) -> None:
    async with engine_over(tokenizer, serve().url, max_attempts=1) as engine:
        (trajectory,) = await engine.run(tasks_with(tasks, "only nan"), say(HIT))
    assert trajectory.end_reason is EndReason.INVALID_REWARD
    assert trajectory.reward is None
    assert trajectory.error is not None
    assert "the reward is nan" in trajectory.error


async def test_each_fault_ends_only_its_own_episode(serve: Any, tokenizer: Any, say: Any, tasks: Any) -> None:
    faults = ["", "raises", "hangs", "nan", "reset raises", "raises once", ""]
    async with engine_over(tokenizer, serve().url, step_timeout_s=3.0, max_attempts=2) as engine:
        trajectories = await engine.run(tasks_with(tasks, *faults), say(HIT))
        assert ends(trajectories) == [
            "done",
            "environment_error",
            "step_timeout",
            "invalid_reward",
            "environment_error",
            "done",
            "done",
        ]
        assert [t.reward for t in trajectories] == [3.0, None, None, None, None, 3.0, 3.0]
        assert [t.attempts for t in trajectories] == [1, 2, 2, 2, 2, 2, 1]
        assert "division by zero" in (trajectories[1].error or "")
        # The sessions that went wrong are gone, and the engine goes on.
        assert ends(await engine.run(tasks(4), say(HIT))) == ["done"] * 4


async def test_episodes_wait_their_turn_where_sessions_are_few(
    serve: Any, tokenizer: Any, say: Any, tasks: Any
) -> None:
    async with engine_over(tokenizer, serve(sessions=2).url, sessions=16) as engine:
        trajectories = await engine.run(tasks(12), say(HIT))
    assert ends(trajectories) == ["done"] * 12


async def test_no_free_session_in_time_is_an_end_reason(serve: Any, tokenizer: Any, say: Any, tasks: Any) -> None:
    async with engine_over(
        tokenizer, serve(sessions=1).url, connect_timeout_s=3.0, step_timeout_s=9.0, max_attempts=1
    ) as engine:
        trajectories = await engine.run(tasks_with(tasks, "hangs", ""), say(HIT))
    assert ends(trajectories) == ["step_timeout", "capacity"]


async def test_a_server_that_goes_away_ends_its_episodes(serve: Any, tokenizer: Any, say: Any, tasks: Any) -> None:
    server = serve()
    policy = say(HIT)
    generate = policy.generate

    async def stop_server_first(prompts: Any, sampling: Any) -> Any:
        await anyio.to_thread.run_sync(server.stop)
        return await generate(prompts, sampling)

    policy.generate = stop_server_first
    async with engine_over(tokenizer, server.url, max_attempts=2, connect_timeout_s=5.0) as engine:
        trajectories = await engine.run(tasks(3), policy)
    assert all(t.reward is None for t in trajectories)
    assert {t.end_reason for t in trajectories} <= {EndReason.SESSION_LOST, EndReason.CONNECT_FAILED}


async def test_an_address_without_a_server_is_told_at_once(tokenizer: Any, say: Any, tasks: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with engine_over(tokenizer, url) as engine:
            with anyio.fail_after(20), pytest.raises(ConnectionFailedError, match=url.removeprefix("http://")):
                await engine.run(tasks(1), say(HIT))


async def test_the_action_schema_becomes_the_tool(
    serve: Any, tokenizer: Any, say: Any, tasks: Any, tool_call: Any
) -> None:
    wrong, right = tool_call("act", direction="up"), tool_call("act", direction=1)
    async with engine_over(tokenizer, serve(Line, Move).url) as engine:
        (trajectory,) = await engine.run(tasks(1), say(wrong, right))
        assert [tool.name for tool in engine.actions.tools] == ["act"]
    assert trajectory.end_reason is EndReason.DONE
    assert "must be of type integer, not 'up'" in trajectory.turns[0].problems[0]
    assert trajectory.step_rewards == [1.0, 2.0]


async def test_cancelling_in_the_middle_gives_every_session_back(
    serve: Any, tokenizer: Any, say: Any, tasks: Any
) -> None:
    async with engine_over(tokenizer, serve().url) as engine:
        async with anyio.create_task_group() as group:
            policy = say(HIT)
            generate = policy.generate

            async def cancel_then_generate(prompts: Any, sampling: Any) -> Any:
                group.cancel_scope.cancel()
                return await generate(prompts, sampling)

            policy.generate = cancel_then_generate
            group.start_soon(engine.run, tasks(8), policy)
        assert ends(await engine.run(tasks(8), say(HIT))) == ["done"] * 8
