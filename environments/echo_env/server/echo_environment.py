"""The echo: an environment whose agent acts by tools, and in which nothing can go wrong.

Source: ``echo_env`` of the OpenEnv project, for the names of the tools and for what a reset gives.
"""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Literal

from openenv_trl.environment import tool
from openenv_trl.mcp_environment import MCPEnvironment
from openenv_trl.types import EnvironmentMetadata, Observation, State


class EchoEnvironment(MCPEnvironment):
    """Says back what it is told. It gives no reward and never ends an episode.

    Example:
        >>> env = EchoEnvironment()
        >>> env.reset().metadata["message"]
        'Echo environment ready!'
        >>> env.echo_with_length("Hello!")
        {'message': 'Hello!', 'length': 6}
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    REPEATABLE: ClassVar[bool] = True
    # All of it takes microseconds: no call needs a thread.
    EXECUTION: ClassVar[Literal["auto", "loop", "thread", "process"]] = "loop"

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        """Begin an episode.

        Args:
            seed: Accepted, and without effect: nothing here is random.
            episode_id: A name for the episode; made up if None.
            **kwargs: Accepted, and without effect.
        """
        self._state = State(episode_id=uuid.uuid4().hex if episode_id is None else episode_id)
        return Observation(reward=0.0, metadata={"status": "ready", "message": "Echo environment ready!"})

    @tool
    def echo_message(self, message: str) -> str:
        """Say the message back."""
        return message

    @tool
    def echo_with_length(self, message: str) -> dict[str, Any]:
        """Say the message back, with the number of its characters."""
        return {"message": message, "length": len(message)}

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Take one step: list the tools, or call one. Either is counted."""
        self._state.step_count += 1
        return super().step(action, timeout_s=timeout_s, **kwargs)

    @property
    def state(self) -> State:
        """The episode's name and the number of its steps."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, version and a description in one sentence."""
        return EnvironmentMetadata(
            name="echo_env", description="Echo: two tools that say back what they are told.", version="0.1.0"
        )
