"""What the end of a training closes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from transformers import TrainerCallback


class HoldsSessions(Protocol):
    """What holds sessions that can be closed until they are needed again."""

    def rest(self) -> None:
        """Close them."""
        ...


class CloseSessions(TrainerCallback):
    """Closes sessions when training has ended. An evaluation after it opens new ones.

    Args:
        holders: What holds them, such as an `EnvironmentFactory`.
    """

    def __init__(self, holders: Sequence[HoldsSessions]) -> None:
        self._holders = list(holders)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Closes them."""
        for holder in self._holders:
            holder.rest()
