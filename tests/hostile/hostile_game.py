"""A small game for a server that is treated badly. Told by the command line of the server under test."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from openenv_trl.environment import Environment, tool
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State


class Say(Action):
    text: str = ""
    number: int = 0
    repeat: int = 1
    wait_s: float = 0.0


class Heard(Observation):
    text: str = ""


class Echo(Environment[Say, Heard, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:
        return Heard(text="ready")

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:
        return Heard(text="ready")

    def step(self, action: Say, timeout_s: float | None = None, **_: Any) -> Heard:
        return Heard(text=action.text * action.repeat)

    async def step_async(self, action: Say, timeout_s: float | None = None, **_: Any) -> Heard:
        if action.wait_s:
            await asyncio.sleep(action.wait_s)
        return self.step(action)

    @tool
    async def say(self, text: str) -> Heard:
        """Say something."""
        return Heard(text=text)

    @property
    def state(self) -> State:
        return State()


app = create_app(Echo, Say, Heard, max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", "64")))
