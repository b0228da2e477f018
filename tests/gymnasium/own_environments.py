"""Gymnasium environments of the tests' own, registered when this module is imported, here and in servers."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import gymnasium
import numpy
from gymnasium import spaces

EVERYTHING = spaces.Dict(
    {
        "discrete": spaces.Discrete(3, start=-1),
        "row": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary([2, 2])]),
        "picture": spaces.Box(0, 255, (4, 5, 3), numpy.uint8),
        "small": spaces.Box(numpy.array([0.0, -1.0]), numpy.array([0.1, 1.0]), dtype=numpy.float64),
        "half": spaces.Box(-1, 1, (2,), numpy.float16),
        "text": spaces.Text(8, charset="abc é"),
        "many": spaces.Sequence(spaces.Box(-1, 1, (2,), numpy.float32)),
        "stacked": spaces.Sequence(spaces.Dict({"x": spaces.Discrete(2)}), stack=True),
        "graph": spaces.Graph(spaces.Box(0, 1, (2,), numpy.float32), spaces.Discrete(4)),
        "either": spaces.OneOf([spaces.Discrete(2), spaces.Text(3)]),
    }
)


class Everything(gymnasium.Env[Any, Any]):
    """Takes every kind of space, and shows samples of it. The reward tells whether the action arrived as it was."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = self.observation_space = EVERYTHING
        self._space = spaces.Dict(EVERYTHING.spaces)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._sample(), {"options": options, "agent": self}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        told = {"scores": numpy.arange(3, dtype=numpy.float32), "kinds": {"wall"}, "deep": {1: [object()]}}
        return self._sample(), float(action["small"][1]), False, False, told

    def render(self) -> Any:
        return numpy.full((6, 8, 3), 200, numpy.uint8)

    def _sample(self) -> Any:
        # A space of its own: EVERYTHING is shared by the instances.
        self._space.seed(int(self.np_random.integers(2**31)))
        return self._space.sample()


class Slow(gymnasium.Env[Any, Any]):
    """Raises, where the action is 2, and never ends."""

    def __init__(self) -> None:
        self.action_space, self.observation_space = spaces.Discrete(3), spaces.Discrete(1000)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 2:
            raise RuntimeError("the motor is stuck")
        self._steps += 1
        return self._steps, 1.0, False, False, {}


class Meeting(gymnasium.Env[Any, Any]):
    """A step ends once as many sessions as the size says are in one at the same time."""

    together: ClassVar[dict[int, threading.Barrier]] = {}

    def __init__(self, size: int = 2) -> None:
        self.action_space, self.observation_space = spaces.Discrete(2), spaces.Discrete(2)
        self._together = self.together.setdefault(size, threading.Barrier(size, timeout=60))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._together.wait()
        return 1, 1.0, False, False, {}


class Short(gymnasium.Env[Any, Any]):
    """Ends after as many steps as the seed says, by termination or by a cut in turn; tells infos of every kind."""

    def __init__(self) -> None:
        self.action_space = spaces.Box(-1, 1, (2,), numpy.float32)
        self.observation_space = spaces.Dict({"at": spaces.Box(-10, 10, (2,), numpy.float64), "n": spaces.Discrete(99)})
        self._left = self._n = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left, self._n = int(self.np_random.integers(1, 6)), 0
        return self._seen(), {"left": self._left, "name": "short"}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        self._n += 1
        over, cut = self._left == 0, self.np_random.random() < 0.5
        info = {"left": self._left, "array": numpy.asarray(action), "nested": {"half": self._left / 2}}
        return self._seen(), float(action[0]), over and not cut, over and bool(cut), info

    def _seen(self) -> Any:
        return {"at": self.np_random.uniform(-10, 10, 2), "n": self._n}


gymnasium.register("Everything-v0", Everything)
gymnasium.register("Slow-v0", Slow)
gymnasium.register("Meeting-v0", Meeting)
gymnasium.register("Short-v0", Short)
