"""How an observation becomes the text that a model reads."""

from __future__ import annotations

from typing import Any

TEXT_FIELDS = ("message", "text", "prompt")
"""Fields that hold the text where the environment wrote one itself, in order of preference."""

_NOT_OBSERVED = ("metadata", "done", "reward")


def observation_text(observation: Any) -> str:
    """The text that the model reads of an observation.

    It is the observation's ``message`` (or ``text``, or ``prompt``) where that is a non-empty string, the
    text of a tool's result where the observation is one, and else compact JSON of the observation without
    ``metadata``.

    Example:
        >>> observation_text({"message": "Your hand: 10, 6.", "player_sum": 16, "metadata": {}})
        'Your hand: 10, 6.'
        >>> observation_text({"board": [0, 1], "metadata": {}})
        '{"board":[0,1]}'
    """
    raise NotImplementedError
