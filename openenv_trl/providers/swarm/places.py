"""Where replicas are in a Swarm: services, and the slots of them that tasks hold."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from openenv_trl.providers.swarm.tasks import Task


@dataclass(eq=False)
class Service:
    """One service of the provider's."""

    name: str
    slots: int
    id: str = ""
    """What Swarm calls it; empty until it is made."""
    volumes: set[str] = field(default_factory=set[str])
    """Its anonymous volumes on the engine's own node. An engine that is restarted forgets to remove them."""


@dataclass(eq=False)
class Place:
    """The slots of a service that are one replica, and the tasks that hold them now."""

    service: Service
    slots: tuple[int, ...]
    """One, but for replicas behind one address."""
    tasks: dict[int, Task] = field(default_factory=dict[int, Task])
    """By slot. Empty until the replica runs, and when it has ended."""
    updating: bool = False
    """Whether its tasks are being replaced because the user asked."""
    moved: bool = False
    """Whether its task was started again by Swarm, and its address is not known yet."""
    followed: dict[str, Future[Any]] = field(default_factory=dict[str, Future[Any]])
    """What passes its log on, by task."""

    def stop_following(self) -> None:
        """Passes no log on any more."""
        for each in self.followed.values():
            each.cancel()
        self.followed.clear()
