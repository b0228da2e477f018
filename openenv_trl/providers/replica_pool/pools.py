"""Pools of several environments that share an engine: its start rate, and how many replicas it bears."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

from typing_extensions import Self

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.base import Replica
from openenv_trl.providers.replica_pool.members import PoolMember
from openenv_trl.providers.replica_pool.pool import ReplicaPool
from openenv_trl.providers.replica_pool.settings import PoolSettings
from openenv_trl.providers.replica_pool.start_limit import StartLimit


class ReplicaPools(Mapping[str, ReplicaPool[Any]]):
    """A `ReplicaPool` for each environment, by name, opened and closed together.

    Args:
        shared: What they may do together: replicas in all, starts side by side and in a second.

    Example:
        >>> pools = ReplicaPools(StartLimit(max_replicas=32, starts_per_second=4))
        >>> pools.add("chess", {"type": "docker", "image": "chess-env"}, connect, PoolSettings(max_replicas=24))
        >>> pools.add("cards", {"type": "docker", "image": "cards-env"}, connect, PoolSettings(max_replicas=24))
        >>> async with pools:
        ...     lease = await pools["chess"].acquire(60)
    """

    def __init__(self, shared: StartLimit | None = None) -> None:
        self.shared = shared or StartLimit()
        self._pools: dict[str, ReplicaPool[Any]] = {}
        self._exit = AsyncExitStack()
        self._opened = False

    def add(
        self,
        name: str,
        members: PoolMember | Sequence[PoolMember],
        connect: Callable[[Replica], Awaitable[Any]],
        settings: PoolSettings | None = None,
    ) -> ReplicaPool[Any]:
        """Add an environment's pool before they are opened; its arguments are those of `ReplicaPool`.

        Raises:
            ConfigurationError: The name is taken, the pools are open, or a member cannot be used.
        """
        if name in self._pools:
            raise ConfigurationError(f"there is a pool named {name!r} already; give each environment its own name")
        if self._opened:
            raise ConfigurationError(f"the pools are open; add {name!r} before `async with`")
        pool = self._pools[name] = ReplicaPool(members, connect, settings, shared=self.shared)
        return pool

    def numbers(self, prefix: str = "pool/") -> dict[str, float]:
        """The metrics of all pools, for a logger: ``pool/chess/waiting``.

        Args:
            prefix: What comes before each environment's name.
        """
        every = (pool.metrics().numbers(f"{prefix}{name}/") for name, pool in self._pools.items())
        return {name: value for numbers in every for name, value in numbers.items()}

    async def __aenter__(self) -> Self:
        self._opened = True
        async with AsyncExitStack() as exit_stack:
            for pool in self._pools.values():
                await exit_stack.enter_async_context(pool)
            self._exit = exit_stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.__aexit__(kind, error, trace)

    def __getitem__(self, name: str) -> ReplicaPool[Any]:
        return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)
