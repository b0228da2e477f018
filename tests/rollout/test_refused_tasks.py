"""Tasks that their environment refuses (a game that there is not): never tried again, and told in its own words.

Over real servers on both wires and with environments in this process. One such task costs its own episode; a run of
nothing else is the user's mistake, and is raised at once.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Literal

import anyio
import pytest
import uvicorn

from openenv_trl.client import GenericEnvClient
from openenv_trl.environment import Environment, tool
from openenv_trl.errors import ConfigurationError
from openenv_trl.providers import SessionPool
from openenv_trl.rollout import EndReason, RolloutEngine, RolloutLimits, RolloutStrategies, Trajectory
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State, StepResult, Tool

pytestmark = pytest.mark.anyio

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'
NO_GAME = "There is no game 'nosuch'. Reset with game='chess'."
NO_KEY = "Set CLOCK_KEY on the server."


class Games(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    resets: list[str]
    built: list[Games]

    def __init__(self) -> None:
        self.built.append(self)
        self.game = ""

    def reset(self, seed: int | None = None, episode_id: str | None = None, game: str = "chess") -> Observation:
        self.resets.append(game)
        self.game = game
        if game == "nosuch":
            raise ConfigurationError(NO_GAME)
        if game == "broken":
            raise ValueError("the board fell down")
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        raise NotImplementedError

    @tool
    def hit(self) -> Observation:
        """Make a move."""
        if self.game == "keyless":
            raise ConfigurationError(NO_KEY)
        return Observation(reward=1.0, done=True)

    @property
    def state(self) -> State:
        return State()


class InThisProcess:
    """A session without a server: the environment's own calls."""

    def __init__(self) -> None:
        self.environment = Games()

    async def reset(self, **arguments: Any) -> StepResult[dict[str, Any]]:
        self.environment.reset(**arguments)
        return StepResult({})

    async def step(self, action: Any, timeout_s: float | None = None) -> StepResult[dict[str, Any]]:
        found = self.environment.call_tool(action["tool_name"], action["arguments"])
        return StepResult({}, reward=found.reward, done=found.done)

    async def list_tools(self) -> list[Tool]:
        return Games.list_tools()

    async def close(self) -> None: ...


class PoolInThisProcess:
    def __init__(self) -> None:
        self.free: list[InThisProcess] = []

    async def acquire(self, timeout_s: float) -> Any:
        return SimpleNamespace(session=self.free.pop() if self.free else InThisProcess(), base_url="here")

    async def release(self, lease: Any, *, healthy: bool) -> None:
        if healthy:
            self.free.append(lease.session)


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a real server in a thread."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    app = create_app(Games, Action, Observation, max_concurrent_envs=8)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(params=["native", "openenv", "in this process"])
def engine(request: pytest.FixtureRequest, url: str, tokenizer: Any) -> Callable[..., Any]:
    """An engine over such environments, wherever they are."""
    Games.resets, Games.built = [], []
    where: Literal["native", "openenv", "in this process"] = request.param

    @asynccontextmanager
    async def over(**settings: Any) -> AsyncGenerator[RolloutEngine]:
        limits = RolloutLimits(max_attempts=3, retry_delay_s=0.0)
        if where == "in this process":
            yield RolloutEngine(PoolInThisProcess(), tokenizer, limits=limits, **settings)
            return

        async def connect(base_url: str) -> GenericEnvClient:
            client = GenericEnvClient(base_url, wire=where)
            await client.connect()
            return client

        async with SessionPool([url], connect, sessions_per_server=8) as pool:
            yield RolloutEngine(pool, tokenizer, limits=limits, **settings)
            assert pool.metrics().in_use == 0

    return over


def with_games(tasks: Any, *games: str) -> list[Any]:
    made = tasks(len(games))
    for task, game in zip(made, games, strict=True):
        task.reset["game"] = game
    return made


def told(trajectory: Trajectory) -> tuple[Any, ...]:
    return trajectory.end_reason, trajectory.error, trajectory.attempts, trajectory.reward


async def test_a_refused_task_costs_its_own_episode_and_is_not_tried_again(engine: Any, say: Any, tasks: Any) -> None:
    async with engine() as playing:
        played = await playing.run(with_games(tasks, "chess", "nosuch", "keyless", "broken", "chess"), say(HIT))
        assert [each.end_reason.value for each in played] == [
            "done",
            "configuration_error",
            "configuration_error",
            "environment_error",
            "done",
        ]
        assert told(played[1]) == (EndReason.CONFIGURATION_ERROR, f"reset: {NO_GAME}", 1, None)
        assert told(played[2]) == (EndReason.CONFIGURATION_ERROR, f"step: {NO_KEY}", 1, None)
        assert Games.resets.count("nosuch") == Games.resets.count("keyless") == 1
        assert Games.resets.count("broken") == 3
        assert playing.metrics["dropped/configuration_error"] == 2.0


async def test_a_run_of_refused_tasks_alone_is_raised_with_the_environments_words(
    engine: Any, say: Any, tasks: Any
) -> None:
    async with engine() as playing:
        with pytest.raises(ConfigurationError, match=r"refused all 4 episodes.*There is no game 'nosuch'.*'chess'"):
            await playing.run(with_games(tasks, *["nosuch"] * 4), say(HIT))
        assert Games.resets == ["nosuch"] * 4


async def test_refused_tasks_after_a_played_one_end_no_run(engine: Any, say: Any, tasks: Any) -> None:
    async with engine() as playing:
        await playing.run(with_games(tasks, "chess"), say(HIT))
        played = await playing.run(with_games(tasks, *["nosuch"] * 4), say(HIT))
        assert [told(each) for each in played] == [(EndReason.CONFIGURATION_ERROR, f"reset: {NO_GAME}", 1, None)] * 4


async def test_runs_of_refused_tasks_prove_nothing_while_those_that_began_beside_them_are_played(
    say: Any, tokenizer: Any, tasks: Any
) -> None:
    """A refusal comes at once, and an episode ends late: of groups that are played side by side, bad ones end first."""
    Games.resets, Games.built = [], []
    engine, may_end = RolloutEngine(PoolInThisProcess(), tokenizer), anyio.Event()

    class Thinks:
        said = say(HIT)

        async def generate(self, prompts: Any, sampling: Any) -> Any:
            await may_end.wait()
            return await self.said.generate(prompts, sampling)

    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, with_games(tasks, "chess"), Thinks())
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            played = await engine.run(with_games(tasks, "nosuch"), say(HIT))
            assert [told(each) for each in played] == [(EndReason.CONFIGURATION_ERROR, f"reset: {NO_GAME}", 1, None)]
        may_end.set()
    played = await engine.run(with_games(tasks, "nosuch"), say(HIT))
    assert played[0].end_reason is EndReason.CONFIGURATION_ERROR


async def test_runs_side_by_side_of_nothing_but_refused_tasks_are_raised(say: Any, tokenizer: Any, tasks: Any) -> None:
    Games.resets, Games.built = [], []
    engine = RolloutEngine(PoolInThisProcess(), tokenizer)
    raised: list[ConfigurationError] = []

    async def play() -> None:
        for _ in range(3):
            try:
                await engine.run(with_games(tasks, "nosuch"), say(HIT))
            except ConfigurationError as error:
                raised.append(error)
                return

    await engine.prepare()
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(play)
    assert len(raised) == 4
    assert NO_GAME in str(raised[0])
    assert len(Games.resets) <= 8, "those that began together, and at most one more of each"


async def test_a_session_that_was_asked_in_vain_is_lent_again(engine: Any, say: Any, tasks: Any) -> None:
    async with engine(max_concurrent_episodes=1) as playing:
        await playing.run(with_games(tasks, "chess", "nosuch", "keyless", "chess"), say(HIT))
        assert len(Games.built) == 1


async def test_who_wants_it_tried_again_says_so(engine: Any, say: Any, tasks: Any) -> None:
    retry: Any = {"type": "back_off", "reasons": ["configuration_error"]}
    async with engine(strategies=RolloutStrategies(retry=retry)) as playing:
        played = await playing.run(with_games(tasks, "chess", "nosuch"), say(HIT))
        assert played[1].attempts == 3
