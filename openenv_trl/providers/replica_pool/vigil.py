"""A provider as a pool has it: watched, asked, and stopped, whatever its methods raise."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from openenv_trl.providers.base import Provider, Replica
from openenv_trl.providers.logs import logger

_ALIVE_S = 5.0


class Vigil:
    """One provider of a pool.

    Args:
        provider: What starts and stops its replicas.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._runs_some = anyio.Event()
        if provider.replicas:
            self._runs_some.set()

    @property
    def health_path(self) -> str:
        """The path at which its servers answer 200 while they are healthy."""
        return getattr(getattr(self.provider, "spec", None), "health_path", "/health")

    def runs_some(self) -> None:
        """A replica has started: from now on one can end."""
        self._runs_some.set()

    async def watch(self, exited: Callable[[Replica, str], None]) -> None:
        """Tells of each replica that ends by itself, for ever.

        Args:
            exited: Called with the replica, and a sentence on its end with its last lines.
        """
        while True:
            await self._runs_some.wait()
            try:
                report = await self.provider.wait_exited()
            except Exception as error:
                # Nothing runs, so nothing ends until the next start; or it cannot tell, and health checks have to do.
                logger.debug("%s tells of no exits: %s", type(self.provider).__name__, error)
                self._runs_some = anyio.Event()
            else:
                exited(report.replica, report.message)

    async def remove(self, replica: Replica) -> None:
        """Ends one replica."""
        try:
            await self.provider.remove_replica(replica)
        except Exception as error:
            # The provider ends it with all others in the end; a pool can do no more.
            logger.warning("%s could not be removed: %s", replica.name, error)

    async def runs(self, replica: Replica) -> bool:
        """Whether the engine says that a replica runs; also where it does not answer, as nobody knows better then."""
        with anyio.move_on_after(_ALIVE_S):
            try:
                return await self.provider.alive(replica)
            except Exception as error:
                logger.debug("whether %s runs is not known: %s", replica.name, error)
        return True

    async def stop(self) -> None:
        """Ends all its replicas."""
        try:
            await self.provider.stop()
        except Exception:
            logger.exception("%s could not stop all its replicas", type(self.provider).__name__)
