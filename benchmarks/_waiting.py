"""An environment that waits, served: its reset as long as the row says, its tool as long as the model says."""

from __future__ import annotations

import asyncio
from typing import Any

from openenv_trl import Action, Environment, Observation, State, create_app, tool


class Said(Observation):
    """One word."""

    message: str = ""


class Waiting(Environment[Action, Said, State]):
    """Waits without a thread."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self._state = State()

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, reset_s: float = 0.0, **kwargs: Any
    ) -> Said:
        """Begin after ``reset_s`` seconds."""
        if reset_s:
            await asyncio.sleep(reset_s)
        self._state = State(episode_id=episode_id)
        return Said(message="Begin.")

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Said:
        """As `reset_async`, which a server calls."""
        return Said(message="Begin.")

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Said:
        """Nothing; the tool is what is called."""
        return Said()

    @property
    def state(self) -> State:
        """Where the episode stands."""
        return self._state

    @tool
    async def wait(self, seconds: float) -> Said:
        """Wait.

        Args:
            seconds: How long.
        """
        if seconds:
            await asyncio.sleep(seconds)
        return Said(message="Waited.", reward=1.0)


app = create_app(Waiting, Action, Said, env_name="waiting", max_concurrent_envs=1024)
