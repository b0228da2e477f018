"""What every provider is: something that brings environment servers to run, and takes them away again.

A provider is made with a spec, or is given one by ``start``. It runs the spec's replicas, adds and removes single ones
(as a pool does), and tells of those that end by themselves. It is used as a context manager, sync or async; the sync
form also works where an event loop runs already, as in a notebook.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar

import anyio
from anyio.from_thread import start_blocking_portal
from typing_extensions import Self

from openenv_trl.errors import ProviderError
from openenv_trl.providers.spec import ServerSpec


@dataclass(frozen=True)
class Replica:
    """One running environment server."""

    base_url: str
    """Where it answers, such as ``http://127.0.0.1:43211``."""
    name: str
    """Its name in logs and errors."""
    id: str = ""
    """What its engine calls it: a container's id, a pod's name, a process's id; empty where it has none."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)
    """HTTP headers that every request to it needs, such as an access token."""


@dataclass(frozen=True)
class Endpoint:
    """What ``start`` brought up: the replicas of one spec."""

    name: str
    """What the replicas are called after."""
    replicas: tuple[Replica, ...]
    """At least one, each ready."""

    @property
    def base_url(self) -> str:
        """The address of the first replica."""
        return self.replicas[0].base_url

    @property
    def base_urls(self) -> list[str]:
        """The address of each replica."""
        return [replica.base_url for replica in self.replicas]


@dataclass(frozen=True)
class ReplicaExit:
    """A replica that ended although nobody stopped it."""

    replica: Replica
    exit_code: int | None
    """The process's exit code; negative when a signal ended it; None where the engine does not tell."""
    log_tail: str
    """The last lines that it wrote."""
    restarting: bool = False
    """Whether the provider starts it again, at the same address."""
    reason: str = ""
    """Why, where the engine knows more than the exit code, such as ``out of memory``."""

    @property
    def message(self) -> str:
        """What happened, in a sentence, with the last lines."""
        why = self.reason or ("ended" if self.exit_code is None else f"ended with exit code {self.exit_code}")
        tail = f" Its last lines:\n{self.log_tail}" if self.log_tail.strip() else " It wrote nothing."
        return f"The environment server {self.replica.name} ({self.replica.base_url}) has died: {why}.{tail}"


class Provider(ABC):
    """Runs replicas of one environment server.

    Example:
        >>> with ProcessProvider("environments/blackjack_env", replicas=2) as servers:
        ...     print(servers.base_urls)
    """

    SPEC: ClassVar[type[Any]]
    """The spec that it takes."""

    @property
    @abstractmethod
    def replicas(self) -> list[Replica]:
        """The replicas that were started; empty before ``start`` and after ``stop``."""

    @property
    def base_urls(self) -> list[str]:
        """The address of each replica."""
        return [replica.base_url for replica in self.replicas]

    @abstractmethod
    async def start(self, spec: ServerSpec | None = None) -> Endpoint:
        """Starts all replicas at the same time and waits until each is ready.

        Args:
            spec: What to run, in place of what the provider was made with.

        Raises:
            ConfigurationError: The spec is of another provider, or there is none.
            ServerStartError: One of them was not ready in time; none is left running.
            ProviderError: The provider runs already, or its engine does not answer.
        """

    @abstractmethod
    async def add_replica(self) -> Replica:
        """Starts one more replica and waits until it is ready. May be called before ``start``, and side by side.

        Raises:
            ServerStartError: It was not ready in time; nothing of it is left.
            ProviderError: The engine does not answer.
        """

    @abstractmethod
    async def remove_replica(self, replica: Replica) -> None:
        """Ends one replica and everything it started. Does nothing where it is gone already."""

    @abstractmethod
    async def stop(self) -> None:
        """Ends all replicas and everything they started. May be called again, and before ``start``."""

    @abstractmethod
    async def wait_ready(self, replica: Replica | None = None, timeout_s: float | None = None) -> None:
        """Waits until a replica answers its health check.

        Args:
            replica: Which; every one if None.
            timeout_s: Seconds; the spec's ``ready_timeout_s`` if None.

        Raises:
            ServerStartError: It ended, or the time was up; the error has its last lines.
        """

    @abstractmethod
    async def logs(self, replica: Replica | None = None, tail: int = 100) -> str:
        """The last lines that a replica wrote.

        Args:
            replica: Which; the first if None.
            tail: Lines at most.
        """

    @abstractmethod
    async def alive(self, replica: Replica | None = None) -> bool:
        """Whether a replica's server runs: the engine is asked, not the server.

        Args:
            replica: Which; all of them if None.
        """

    @abstractmethod
    async def wait_exited(self) -> ReplicaExit:
        """Waits until a replica ends that nobody stopped. Exits that happened before come first, each once.

        Raises:
            ProviderError: The provider was stopped, or does not run.
        """

    async def check(self) -> None:  # noqa: B027 - not every provider has something to check
        """Checks what can be checked without starting anything, as that the engine answers and has the image.

        Raises:
            ProviderError: The engine does not answer, or does not let us in.
            ServerStartError: The image is not there, or cannot be run so.
        """

    def check_sync(self) -> None:
        """Does what ``check`` does, for callers without an event loop, and for notebooks."""
        run_sync(self.check)

    def start_sync(self, spec: ServerSpec | None = None) -> Endpoint:
        """Does what ``start`` does, for callers without an event loop, and for notebooks."""
        return run_sync(self.start, spec)

    def stop_sync(self) -> None:
        """Does what ``stop`` does, for callers without an event loop, and for notebooks."""
        run_sync(self.stop)

    def add_replica_sync(self) -> Replica:
        """Does what ``add_replica`` does, for callers without an event loop, and for notebooks."""
        return run_sync(self.add_replica)

    def remove_replica_sync(self, replica: Replica) -> None:
        """Does what ``remove_replica`` does, for callers without an event loop, and for notebooks."""
        run_sync(self.remove_replica, replica)

    def wait_ready_sync(self, replica: Replica | None = None, timeout_s: float | None = None) -> None:
        """Does what ``wait_ready`` does, for callers without an event loop, and for notebooks."""
        run_sync(self.wait_ready, replica, timeout_s)

    def logs_sync(self, replica: Replica | None = None, tail: int = 100) -> str:
        """Does what ``logs`` does, for callers without an event loop, and for notebooks."""
        return run_sync(self.logs, replica, tail)

    def alive_sync(self, replica: Replica | None = None) -> bool:
        """Does what ``alive`` does, for callers without an event loop, and for notebooks."""
        return run_sync(self.alive, replica)

    def _the_replica(self, replica: Replica | None) -> Replica:
        if replica is not None:
            return replica
        if not self.replicas:
            raise ProviderError("the provider runs nothing; start it first", phase="start")
        return self.replicas[0]

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


def run_sync(function: Any, *arguments: Any) -> Any:
    """Runs an async function to its end, in a thread of its own where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop_runs = False
    else:
        loop_runs = True
    if not loop_runs:
        # Past the block above: an error from here is not to be shown as one that came while another was handled.
        return anyio.run(function, *arguments)
    # An interrupt in the waiting thread cancels the function, which then cleans up.
    with start_blocking_portal() as portal:
        return portal.call(function, *arguments)
