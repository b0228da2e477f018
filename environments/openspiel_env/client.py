"""The typed client: `OpenSpielAction` or a tool's call in, `OpenSpielObservation` out."""

from __future__ import annotations

from openenv_trl.client import TypedEnvClient
from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState


class OpenSpielEnv(TypedEnvClient[OpenSpielAction, OpenSpielObservation, OpenSpielState]):
    """One session on a server of an OpenSpiel game, ours or the public package's.

    Example:
        >>> with OpenSpielEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         result = env.step(OpenSpielAction(action_id=result.observation.legal_actions[0]))
        ...     print(result.observation.message, result.reward)
    """

    ACTION, OBSERVATION, STATE = OpenSpielAction, OpenSpielObservation, OpenSpielState
