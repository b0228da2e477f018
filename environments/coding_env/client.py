"""The typed client: `CodeAction` or a tool's call in, `CodeObservation` out."""

from __future__ import annotations

from coding_env.models import CodeAction, CodeObservation, CodeState
from openenv_trl.client import TypedEnvClient


class CodingEnv(TypedEnvClient[CodeAction, CodeObservation, CodeState]):
    r"""One session on a coding server, ours or the public package's.

    Example:
        >>> with CodingEnv("http://localhost:8000").sync() as env:
        ...     env.reset(seed=1)
        ...     print(env.step(CodeAction(code="x = 20\nx + 1")).observation.stdout)
    """

    ACTION, OBSERVATION, STATE = CodeAction, CodeObservation, CodeState
