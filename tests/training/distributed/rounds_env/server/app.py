"""An environment of as many rounds as its reset says, so that a test decides how many turns each rank needs."""

from __future__ import annotations

from typing import Any

from openenv_trl import Action, Environment, Observation, State, create_app, tool
from openenv_trl.errors import ConfigurationError


class Rounds(Environment[Action, Observation, State]):
    """Over after so many rounds."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self._state = State()
        self._rounds = 1

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, rounds: int = 1, way: str = "none", **_: Any
    ) -> Observation:
        self._state = State(episode_id=episode_id)
        self._rounds = rounds
        if way == "reset raises":
            raise RuntimeError("the deck is missing")
        if way == "reset refuses":
            raise ConfigurationError("there is no deck of that name")
        return Observation(metadata={})

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        return self._round()

    @property
    def state(self) -> State:
        return self._state

    @tool
    def hit(self) -> Observation:
        """Take a card."""
        return self._round()

    @tool
    def stand(self) -> Observation:
        """Stop."""
        return self._round()

    def _round(self) -> Observation:
        self._state.step_count += 1
        return Observation(done=self._state.step_count >= self._rounds, reward=1.0 / self._rounds)


app = create_app(Rounds, Action, Observation, env_name="rounds_env", max_concurrent_envs=64)
