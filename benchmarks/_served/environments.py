"""Environments that do nothing, so that what is measured is what carries them; and some that wait."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

from .models import ArrayObservation, EchoAction, EchoObservation, FrameAction, FrameObservation

SLEEP_S = 0.05
PATIENCE_S = 1.0


class EchoEnvironment(Environment[EchoAction, EchoObservation, State]):
    """Says what it is told, by synchronous hooks."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._episode_id: str | None = None
        self._steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> EchoObservation:
        self._episode_id = episode_id
        self._steps = 0
        return EchoObservation(echo="ready")

    def step(self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any) -> EchoObservation:
        self._steps += 1
        return EchoObservation(echo=action.message)

    @property
    def state(self) -> State:
        return State(episode_id=self._episode_id, step_count=self._steps)


class AsyncEchoEnvironment(EchoEnvironment):
    """Says what it is told, by asynchronous hooks."""

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> EchoObservation:
        return self.reset(seed, episode_id)

    async def step_async(self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any) -> EchoObservation:
        return self.step(action)


class SleepingEnvironment(EchoEnvironment):
    """Blocks its thread for a while in each step."""

    def step(self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any) -> EchoObservation:
        time.sleep(SLEEP_S)
        return EchoObservation(echo=action.message)


class PatientEnvironment(AsyncEchoEnvironment):
    """Waits a second in each step, without a thread."""

    async def step_async(self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any) -> EchoObservation:
        await asyncio.sleep(PATIENCE_S)
        return EchoObservation(echo=action.message)


class FrameEnvironment(Environment[FrameAction, FrameObservation, State]):
    """Shows a frame of a game, as a list of numbers."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        import numpy

        self._screen = numpy.random.default_rng(1).integers(0, 256, (210, 160, 3), numpy.uint8)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
        return self._shown()

    def step(self, action: FrameAction, timeout_s: float | None = None, **kwargs: Any) -> Any:
        return self._shown()

    @property
    def state(self) -> State:
        return State()

    def _shown(self) -> Any:
        return FrameObservation(pixels=self._screen.flatten().tolist())


class ArrayEnvironment(FrameEnvironment):
    """Shows a frame of a game, as the array that it is."""

    def _shown(self) -> Any:
        return ArrayObservation(pixels=self._screen)
