"""The environment."""

import random
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from ..models import GridAction, GridObservation, GridState, Move

STEPS = {Move.UP: (-1, 0), Move.DOWN: (1, 0), Move.LEFT: (0, -1), Move.RIGHT: (0, 1)}


class GridEnvironment(Environment[GridAction, GridObservation, GridState]):
    """Reach the goal; every step costs a little."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, size: int = 4):
        super().__init__()
        self._state = GridState(size=size)
        self._position = [0, 0]
        self._goal = [size - 1, size - 1]

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, size: int | None = None, **kwargs: Any
    ) -> GridObservation:
        size = size or self._state.size
        if size < 2:
            raise ValueError("a grid has two rows at least")
        draw = random.Random(seed)
        self._state = GridState(episode_id=episode_id, step_count=0, size=size)
        self._position = [0, 0]
        self._goal = [draw.randrange(size), draw.randrange(1, size)] if seed is not None else [size - 1, size - 1]
        return self._observe("Begin.")

    def step(self, action: GridAction, timeout_s: float | None = None, **kwargs: Any) -> GridObservation:
        self._state.step_count += 1
        down, right = STEPS[action.move]
        for axis, by in enumerate((down, right)):
            self._position[axis] = min(max(self._position[axis] + by * action.strides, 0), self._state.size - 1)
        return self._observe("There." if self._position == self._goal else "On.", reward=-0.1)

    @property
    def state(self) -> GridState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="ported_grid", description="A walk on a grid", version="0.3.0")

    def _observe(self, message: str, reward: float | None = None) -> GridObservation:
        there = self._position == self._goal
        return GridObservation(
            position=list(self._position),
            goal=list(self._goal),
            message=message,
            done=there,
            reward=1.0 if there and reward is not None else reward,
        )
