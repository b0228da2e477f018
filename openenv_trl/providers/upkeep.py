"""What goes on beside a provider's replicas, so that none outlives its owner: a reaper, leases, a look after others."""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import anyio
import anyio.to_thread

from openenv_trl.providers.base import Replica
from openenv_trl.providers.lease import LeaseKeeper
from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.ownership.guard import Guard
from openenv_trl.providers.ownership.neighbours import clean_up_after_the_dead

_LATER_S = 0.5


class Upkeep:
    """The upkeep of one provider's replicas.

    Args:
        replicas: Those whose leases are to be renewed now.
    """

    def __init__(self, replicas: Callable[[], Iterable[Replica]]) -> None:
        self._leases = LeaseKeeper(replicas)
        self._running: list[Future[Any]] = []
        self._begun = False
        self._guard: Guard | None = None

    def variables(self, lease_s: float | None, start_s: float) -> dict[str, str]:
        """Return the environment variables that say whose a server is, and for how long it lives without its owner.

        Args:
            lease_s: Its lease; None where it has none.
            start_s: How long it may take until it serves.
        """
        leased = {} if lease_s is None else self._leases.variables(lease_s, start_s)
        return {**this_owner().variables(), **leased}

    async def guard(self, place: Mapping[str, Any] | None) -> None:
        """See to it that what is made at a place from now on is removed when this process dies.

        Args:
            place: Where; None where nothing can be removed.

        Raises:
            ProviderError: The process that removes it could not be started.
        """
        if place is not None and os.name == "posix":
            self._guard = await anyio.to_thread.run_sync(Guard, place)

    async def begin(
        self, spawn: Callable[..., Awaitable[Future[Any]]], lease_s: float | None, place: Mapping[str, Any] | None
    ) -> None:
        """Begin to renew leases. To be called when a replica is launched; what it needs is imported a while later.

        Args:
            spawn: Runs a function beside all else.
            lease_s: The servers' lease; None where they have none.
            place: Where the servers are; None where nothing can be removed.
        """
        if self._begun:
            return
        self._begun = True
        if lease_s is not None:
            self._running.append(await spawn(self._renew, lease_s))
        if place is not None:
            self._running.append(await spawn(clean_up_after_the_dead, place))

    async def _renew(self, lease_s: float) -> None:
        # Whoever waits for the replica comes first; a new lease is far from its end.
        await anyio.sleep(min(_LATER_S, lease_s / 12))
        await anyio.to_thread.run_sync(importlib.import_module, "httpx")
        await self._leases.run(lease_s)

    def end(self) -> None:
        """Renew no more."""
        for future in self._running:
            future.cancel()
        self._running.clear()
        self._begun = False

    def release(self) -> None:
        """Nothing is left that would have to be removed."""
        if self._guard is not None:
            self._guard.release()
            self._guard = None
