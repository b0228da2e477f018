"""The blocking client: the same names as the asynchronous one, for scripts and notebooks."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import Self

from openenv_trl.client.background import background_portal
from openenv_trl.types import StepResult, Tool

if TYPE_CHECKING:
    from openenv_trl.client.env_client import EnvClient

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")
Value = TypeVar("Value")


class SyncEnvClient(Generic[ActT, ObsT, StateT]):
    """A blocking client around an asynchronous one. Made by `EnvClient.sync`; all of them share one background thread.

    Several threads may use one client: their calls wait for each other, and each gets its own reply.

    Example:
        >>> with GenericEnvClient("http://localhost:8000").sync() as env:
        ...     result = env.reset(seed=7)
        ...     result = env.step({"move": "stand"})
    """

    def __init__(self, async_client: EnvClient[ActT, ObsT, StateT]) -> None:
        self._client = async_client

    @property
    def async_client(self) -> EnvClient[ActT, ObsT, StateT]:
        """The client that does the work."""
        return self._client

    @property
    def base_url(self) -> str:
        """The server's address, as it was given."""
        return self._client.base_url

    @property
    def is_open(self) -> bool:
        """As `EnvClient.is_open`."""
        return self._client.is_open

    def connect(self) -> Self:
        """As `EnvClient.connect`."""
        _wait_for(self._client.connect)
        return self

    def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """As `EnvClient.reset`."""
        return _wait_for(functools.partial(self._client.reset, **kwargs))

    def step(self, action: ActT, timeout_s: float | None = None) -> StepResult[ObsT]:
        """As `EnvClient.step`."""
        return _wait_for(functools.partial(self._client.step, action, timeout_s))

    def state(self) -> StateT:
        """As `EnvClient.state`."""
        return _wait_for(self._client.state)

    def list_tools(self) -> list[Tool]:
        """As `EnvClient.list_tools`."""
        return _wait_for(self._client.list_tools)

    def close(self) -> None:
        """As `EnvClient.close`."""
        _wait_for(self._client.close)

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _wait_for(call: Callable[[], Awaitable[Value]]) -> Value:
    future = background_portal().start_task_soon(call)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # of use where the wait was interrupted (Ctrl-C): the call must not run on unseen
        raise
