"""The typed client: `BlackjackAction` or a tool's call in, `BlackjackObservation` out."""

from __future__ import annotations

from blackjack_env.models import BlackjackAction, BlackjackObservation, BlackjackState
from openenv_trl.client import TypedEnvClient


class BlackjackEnv(TypedEnvClient[BlackjackAction, BlackjackObservation, BlackjackState]):
    """One session on a blackjack server.

    Example:
        >>> with BlackjackEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         move = "hit" if result.observation.player_sum < 17 else "stand"
        ...         result = env.step(BlackjackAction(move=move))
        ...     print(result.observation.message)
    """

    ACTION, OBSERVATION, STATE = BlackjackAction, BlackjackObservation, BlackjackState
