"""What one episode is about: the prompt's messages, and what the environment is reset with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openenv_trl.errors import ConfigurationError

Message = dict[str, Any]
"""A chat message as chat templates take it: ``role``, ``content``, and what else the template knows."""


@dataclass(frozen=True)
class Task:
    """One episode to play.

    Attributes:
        prompt: Messages that the episode begins with. The first observation is added to the last user
            message.
        reset: Keyword arguments of the environment's ``reset``, such as ``seed`` or ``task_seed``.
        group: Names the prompt that this episode is one of several generations of. None stands alone.
        index: The place of the task in its batch or data set; for logs.
        metadata: Anything else that belongs to the task; it travels with the trajectory untouched.

    Raises:
        ConfigurationError: The prompt is not a list of messages, or the reset arguments have keys that are no
            names.

    Example:
        >>> Task(prompt=[{"role": "user", "content": "Play."}], reset={"seed": 7}, group=0)
    """

    prompt: Sequence[Message]
    reset: Mapping[str, Any] = field(default_factory=dict[str, Any])
    group: str | int | None = None
    index: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        prompt: Any = self.prompt
        if isinstance(prompt, str) or not prompt or not all(isinstance(m, Mapping) and "role" in m for m in prompt):
            raise ConfigurationError(
                f"The prompt of task {self.index} must be a non-empty list of messages like "
                f'[{{"role": "user", "content": "..."}}], not {prompt!r:.120}.'
            )
        bad = [key for key in self.reset if not key.isidentifier()]
        if bad:
            raise ConfigurationError(
                f"The reset arguments of task {self.index} become keyword arguments of the environment's "
                f"reset, so each key must be a name; these are not: {bad}."
            )
