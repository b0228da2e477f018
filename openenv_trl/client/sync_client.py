"""The blocking client: the same names as the asynchronous one, for scripts and notebooks."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import Self

from openenv_trl.client.background import background_portal
from openenv_trl.errors import SessionStateError
from openenv_trl.types import StepResult, Tool

if TYPE_CHECKING:
    from openenv_trl.client.env_client import EnvClient

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")
Value = TypeVar("Value")


class SyncEnvClient(Generic[ActT, ObsT, StateT]):
    """A blocking client around an asynchronous one. Made by `EnvClient.sync`; all of them share one background thread.

    Several threads may use one client: their calls wait for each other, and each gets its own reply. A coroutine method
    that an environment's own client adds is there too, as a blocking one. In a running event loop a call is refused, as
    it would stop the loop; but not in a notebook, whose cells run in one.

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
    def base_url(self) -> str | None:
        """The server's address, as it was given."""
        return self._client.base_url

    @property
    def is_open(self) -> bool:
        """As `EnvClient.is_open`."""
        return self._client.is_open

    @property
    def wire(self) -> str | None:
        """As `EnvClient.wire`."""
        return self._client.wire

    @property
    def session_id(self) -> str | None:
        """As `EnvClient.session_id`."""
        return self._client.session_id

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

    def list_tools(self, **options: Any) -> list[Tool]:
        """As `EnvClient.list_tools`, or as that of the client that does the work."""
        return _wait_for(functools.partial(self._client.list_tools, **options))

    def disconnect(self) -> None:
        """As `EnvClient.disconnect`."""
        _wait_for(self._client.disconnect)

    def new_session(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """As `EnvClient.new_session`; a blocking client too."""
        return SyncEnvClient(_wait_for(self._client.new_session))

    def close(self) -> None:
        """As `EnvClient.close`."""
        _wait_for(self._client.close)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if not inspect.iscoroutinefunction(value):
            return value

        @functools.wraps(value)
        def blocking(*positional: Any, **named: Any) -> Any:
            return _wait_for(functools.partial(value, *positional, **named))

        return blocking

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _wait_for(call: Callable[[], Awaitable[Value]]) -> Value:
    _check_that_no_loop_stops()
    future = background_portal().start_task_soon(call)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # of use where the wait was interrupted (Ctrl-C): the call must not run on unseen
        raise


def _check_that_no_loop_stops() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    interactive = sys.modules.get("IPython")
    if interactive is None or interactive.get_ipython() is None:
        raise SessionStateError(
            "A blocking client was called inside a running event loop, which would stop the loop. Await the "
            "asynchronous client there (.async_client), or call this one in a thread (asyncio.to_thread)."
        )
