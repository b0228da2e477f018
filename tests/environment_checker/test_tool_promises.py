"""The promises of tools, each broken alone and found alone; environments that act by tools alone are played by them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from blackjack_env.models import BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment

from openenv_trl import check_environment
from openenv_trl.environment import Environment, tool
from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.types import Action, Observation, State


class ToolReturnsText(BlackjackEnvironment):
    @tool
    def hint(self) -> str:
        """Ask for a hint."""
        return "it is even"


class ToolRaises(BlackjackEnvironment):
    @tool
    def hint(self, about: str) -> BlackjackObservation:
        """Ask for a hint."""
        raise KeyError(about)


class ToolUndescribed(BlackjackEnvironment):
    @tool
    async def hint(self) -> BlackjackObservation:
        return await self.stand()


class ToolWithoutHints(BlackjackEnvironment):
    @tool
    async def hint(self, about) -> BlackjackObservation:  # pyright: ignore
        """Ask for a hint."""
        return await self.stand()


class ToolsAlone(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        self.generator = random.Random(seed)
        self.kept = State(episode_id=episode_id)
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        return self.kept

    @tool
    def guess(self, number: int) -> Observation:
        """Guess the number."""
        return self._told(number)

    def _told(self, number: int) -> Observation:
        self.kept.step_count += 1
        return Observation(reward=self.generator.random() + number, done=self.kept.step_count >= 5)


class AsyncTool(ToolsAlone):
    @tool
    async def ponder(self, words: list[str]) -> Observation:
        """Think for a while."""
        return self._told(len(words))


class ToolNotCounted(ToolsAlone):
    @tool
    def guess(self, number: int) -> Observation:
        """Guess the number."""
        return Observation(reward=self.generator.random())


class ToolDrawsFromElsewhere(ToolsAlone):
    @tool
    def guess(self, number: int) -> Observation:
        """Guess the number."""
        return self._told(random.SystemRandom().randrange(10**9))


@pytest.mark.parametrize(
    ("environment", "codes"),
    [
        (ToolReturnsText, ["tool-result"]),
        (ToolRaises, ["tool-raised"]),
        (ToolUndescribed, ["tool-description"]),
        (ToolWithoutHints, ["tool-schema"]),
        (ToolNotCounted, ["state-step-count"]),
        (ToolDrawsFromElsewhere, ["seed-replay"]),
        (ToolsAlone, []),
        (AsyncTool, []),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_tools_broken_promise_is_found_and_nothing_else(
    environment: type[Environment[Any, Any, Any]], codes: list[str]
) -> None:
    report = check_environment(environment)
    assert report.codes == codes, str(report)


def test_an_environment_of_an_mcp_server_is_checked_by_calls_of_its_tools() -> None:
    class Desk(MCPEnvironment):
        def __init__(self) -> None:
            super().__init__()
            self.total = State()

            @self.tool()
            def add(number: int) -> int:
                self.total.step_count += 1
                return number

        def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
            self.total = State(episode_id=episode_id)
            return Observation()

        @property
        def state(self) -> State:
            return self.total

    report = check_environment(Desk)
    report.raise_for_errors()
    assert [code for code in report.codes if code.startswith("tool")] == ["tool-description"]
