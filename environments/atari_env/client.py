"""The typed client: `AtariAction` or a tool's call in, `AtariObservation` out."""

from __future__ import annotations

from atari_env.models import AtariAction, AtariObservation, AtariState
from openenv_trl.client import TypedEnvClient


class AtariEnv(TypedEnvClient[AtariAction, AtariObservation, AtariState]):
    """One session on a server of an Atari game, ours or the public package's.

    Example:
        >>> with AtariEnv("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=1)
        ...     while not result.done:
        ...         result = env.step(AtariAction(action_id=2))
        ...     print(result.observation.pixels().shape)
    """

    ACTION, OBSERVATION, STATE = AtariAction, AtariObservation, AtariState
