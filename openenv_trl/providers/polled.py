"""Providers whose engine tells of no end by itself, or is none: each replica is looked at every few seconds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import anyio

from openenv_trl.errors import OpenEnvError
from openenv_trl.providers.base import Replica
from openenv_trl.providers.engine_provider import EngineProvider, SpecT
from openenv_trl.providers.logs import logger
from openenv_trl.providers.web_health import WebHealth


@dataclass(frozen=True)
class Ended:
    """What a look at a replica that has ended told."""

    exit_code: int | None
    """The exit code of its process, where that is known."""
    log_tail: str
    """Its last lines."""
    reason: str = ""
    """Why, where more is known than the code."""


class PolledProvider(EngineProvider[SpecT]):
    """An `EngineProvider` that looks at each ready replica now and then.

    A subclass that overrides `_connect` or `_disconnect` calls these too.
    """

    async def _connect(self) -> None:
        self._web = WebHealth()
        self._watching: Future[Any] | None = None
        self._watching = await self._spawn(self._watch)

    async def _disconnect(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._web.close()

    @abstractmethod
    def _pause_s(self) -> float:
        """Seconds between two looks."""

    @abstractmethod
    async def _look(self, replica: Replica) -> Ended | None:
        """Look at one replica; None where it runs, as far as can be told."""

    async def _health(self, replica: Replica, timeout_s: float, ended: Callable[[], bool]) -> str:
        return await self._web.wait(f"{replica.base_url}{self.spec.health_path}", replica.headers, timeout_s, ended)

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(self._pause_s())
            async with anyio.create_task_group() as group:
                for replica in self.replicas:
                    group.start_soon(self._look_at, replica)

    async def _look_at(self, replica: Replica) -> None:
        try:
            ended = await self._look(replica)
        except OpenEnvError as error:
            # What cannot be seen now is not known to be dead.
            logger.warning("%s could not be looked at: %s", replica.name, error)
            return
        if ended is not None:
            self._note_exit(replica.name, ended.exit_code, ended.log_tail, ended.reason)
