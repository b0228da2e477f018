"""An environment whose reset does what it is told to, so that a test can bring about each failure."""

from __future__ import annotations

import threading
import time
from typing import Any

from openenv_trl import Action, Environment, Observation, State, create_app, tool

barriers: dict[int, threading.Barrier] = {}
tries: dict[Any, int] = {}
lock = threading.Lock()


class Trial(Environment[Action, Observation, State]):
    """Two tools, as blackjack's; ``stand`` ends the episode, and wins where the seed is even."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self._state = State()
        self.seed = 0
        self.way = "none"

    def reset(self, seed: int = 0, episode_id: str | None = None, way: str = "none", **kwargs: Any) -> Observation:
        self._state = State(episode_id=episode_id)
        self.seed, self.way = seed, way
        if way.startswith("meet "):
            # Passes only if so many resets are under way at the same time.
            parties = int(way.removeprefix("meet "))
            with lock:
                barrier = barriers.setdefault(parties, threading.Barrier(parties))
            barrier.wait(timeout=20)
        if way == "first try raises":
            with lock:
                tries[seed] = tries.get(seed, 0) + 1
                first = tries[seed] == 1
            if first:
                raise RuntimeError("the deck fell down")
        if way == "raises" or (way == "odd seeds raise" and seed % 2):
            raise RuntimeError("the deck is missing")
        return Observation(metadata={"way": way})

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return self.stand()

    @property
    def state(self) -> State:
        return self._state

    @tool
    def hit(self) -> Observation:
        "Take a card."
        return self._seen(done=False)

    @tool
    def stand(self) -> Observation:
        "Stop."
        if self.way == "step hangs":
            time.sleep(30)
        return self._seen(done=True)

    def _seen(self, *, done: bool) -> Observation:
        self._state.step_count += 1
        return Observation(done=done, reward=float(done and self.seed % 2 == 0))


app = create_app(Trial, Action, Observation, env_name="trial_env", max_concurrent_envs=64)
