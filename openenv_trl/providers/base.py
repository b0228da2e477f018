"""What every provider is: something that brings environment servers to run, and takes them away again.

A provider is used as a context manager, sync or async. The sync form also works where an event loop runs
already, as in a notebook.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal
from typing_extensions import Self


@dataclass(frozen=True)
class Replica:
    """One running environment server."""

    base_url: str
    """Where it answers, such as ``http://127.0.0.1:43211``."""
    name: str
    """Its name in logs and errors."""


class Provider(ABC):
    """Runs replicas of one environment server.

    Example:
        >>> with ProcessProvider("environments/blackjack_env", replicas=2) as servers:
        ...     print(servers.base_urls)
    """

    @property
    @abstractmethod
    def replicas(self) -> list[Replica]:
        """The replicas that were started; empty before ``start`` and after ``stop``."""

    @property
    def base_urls(self) -> list[str]:
        """The address of each replica."""
        return [replica.base_url for replica in self.replicas]

    @abstractmethod
    async def start(self) -> list[Replica]:
        """Starts all replicas at the same time and waits until each is ready.

        Raises:
            ServerStartError: One of them was not ready in time; none is left running.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Ends all replicas and everything they started. May be called again, and before ``start``."""

    def start_sync(self) -> list[Replica]:
        """Does what ``start`` does, for callers without an event loop, and for notebooks."""
        return _run(self.start)

    def stop_sync(self) -> None:
        """Does what ``stop`` does, for callers without an event loop, and for notebooks."""
        _run(self.stop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop()

    def __enter__(self) -> Self:
        self.start_sync()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_sync()


def _run(function: Any) -> Any:
    """Runs an async function to its end, in a thread of its own where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return anyio.run(function)
    # An interrupt in the waiting thread cancels the function, which then cleans up.
    with start_blocking_portal() as portal:
        return portal.call(function)
