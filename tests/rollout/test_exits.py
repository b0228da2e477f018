"""Promises about code of the user's that raises what ends a program: the run ends with an error, and nothing waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError, PolicyError
from openenv_trl.rollout import TextActions
from openenv_trl.rollout.play import run_blocking

EXITS = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]


class Observer:
    """Hears all, and raises at one kind of event."""

    def __init__(self, event: str, error: type[BaseException]) -> None:
        self.event, self.error = event, error

    def __getattr__(self, name: str) -> Any:
        def hear(*_: Any) -> None:
            if name == self.event:
                raise self.error("out")

        return hear


@pytest.mark.parametrize("error", EXITS)
@pytest.mark.parametrize("event", ["episode_started", "turn_ended", "episode_finished"])
def test_an_observer_that_exits_ends_the_run_with_an_error(
    event: str, error: type[BaseException], make_engine: Any, say: Any, tool_call: Any, tasks: Any
) -> None:
    engine, pool = make_engine()

    async def play() -> None:
        await engine.run(tasks(4), say(tool_call("hit")), observer=Observer(event, error))

    with pytest.raises(ConfigurationError, match=rf"raised {error.__name__}.*must not end the program"):
        run_blocking(play)  # on a loop in another thread, as a trainer's
    assert pool.leased == 0


@pytest.mark.parametrize("error", EXITS)
def test_a_parser_that_exits_ends_the_run_with_an_error(
    error: type[BaseException], make_engine: Any, say: Any, tasks: Any
) -> None:
    def parse(text: str) -> Any:
        raise error(2)

    engine, pool = make_engine(actions=TextActions(parse))

    async def play() -> None:
        await engine.run(tasks(4), say("words"))

    with pytest.raises(ConfigurationError, match=error.__name__):
        run_blocking(play)
    assert pool.leased == 0


@pytest.mark.parametrize("error", EXITS)
@pytest.mark.parametrize("concurrent", [False, True])
def test_a_policy_that_exits_is_a_policy_that_cannot_generate(
    concurrent: bool, error: type[BaseException], make_engine: Any, tasks: Any
) -> None:
    class Leaves:
        async def generate(self, prompts: Any, sampling: Any) -> Any:
            raise error("out")

    policy: Any = Leaves()
    policy.concurrent = concurrent
    engine, pool = make_engine()

    async def play() -> None:
        await engine.run(tasks(4), policy)

    with pytest.raises(PolicyError, match=error.__name__):
        run_blocking(play)
    assert pool.leased == 0
