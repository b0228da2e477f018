"""What an engine's provider keeps of each replica: how its start goes, whether it runs, and how it ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import anyio

from openenv_trl.providers.base import Replica, ReplicaExit


@dataclass(eq=False)
class Kept:
    """What is known of one replica that was launched."""

    replica: Replica
    ended: anyio.Event = field(default_factory=anyio.Event)
    exit: ReplicaExit | None = None
    ready: bool = False
    removing: bool = False


@dataclass(eq=False)
class Start:
    """The start of one replica, until it runs or has failed."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)


class Exits:
    """The exits that nobody has taken yet, the oldest first. Used on one event loop."""

    def __init__(self) -> None:
        self._untaken: deque[ReplicaExit] = deque()
        self._changed = anyio.Event()
        self._stops = 0

    def put(self, gone: ReplicaExit) -> None:
        """Add one; whoever waits takes it."""
        self._untaken.append(gone)
        self._wake()

    def stop(self) -> None:
        """Forget all, and send away whoever waits."""
        self._untaken.clear()
        self._stops += 1
        self._wake()

    async def take(self) -> ReplicaExit | None:
        """Wait for one, and take it; None where it was stopped meanwhile."""
        stops = self._stops
        while not self._untaken:
            await self._changed.wait()
            if self._stops != stops:
                return None
        return self._untaken.popleft()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
