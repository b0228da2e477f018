"""Calls of an environment that were started before their caller asked for them.

Pure. A trainer's loop calls tools one after another; whoever can read the model's turns ahead of it starts the calls
of all episodes at once, and the loop's own calls then take what was started. What was started and is not what the
loop calls in the end must not pass for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StartedCall:
    """A call that is under way.

    Attributes:
        name: The tool's.
        arguments: As the model gave them.
        answer: What will be answered.
    """

    name: str
    arguments: Any
    answer: Future[str]


class StartedCalls:
    """The calls of one episode that were started, in order."""

    def __init__(self) -> None:
        self._waiting: deque[StartedCall] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, calls: Sequence[StartedCall]) -> None:
        """These calls were started, after those that wait."""
        self._waiting.extend(calls)

    def take(self, name: str, arguments: Any) -> Future[str] | None:
        """The answer of the next call if it is this one; None if none was started, or another."""
        if not self._waiting:
            return None
        following = self._waiting[0]
        if following.name != name or following.arguments != arguments:
            return None
        return self._waiting.popleft().answer

    def forget(self) -> bool:
        """Drop what waits; returns whether any of it may have reached the environment."""
        waiting, self._waiting = self._waiting, deque()
        dropped = [call.answer.cancel() for call in waiting]
        return not all(dropped)
