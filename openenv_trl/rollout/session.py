"""What the engine needs of a session, a lease and a pool. `GenericEnvClient` and `SessionPool` fit."""

from __future__ import annotations

from typing import Any, Protocol

from openenv_trl.types import StepResult, Tool


class PlayedSession(Protocol):
    """One environment, as an episode plays in it."""

    async def reset(self, **kwargs: Any) -> StepResult[dict[str, Any]]:
        """Begin an episode."""
        ...

    async def step(self, action: Any, timeout_s: float | None = None) -> StepResult[dict[str, Any]]:
        """Take one action."""
        ...


class Session(PlayedSession, Protocol):
    """One environment, held open by its connection."""

    async def list_tools(self) -> list[Tool]:
        """The tools that the environment offers; an empty list where it offers none."""
        ...

    async def close(self) -> None:
        """End the session."""
        ...


class SessionLease(Protocol):
    """A session, lent."""

    @property
    def session(self) -> Any:
        """The `Session` lent."""
        ...

    @property
    def base_url(self) -> str:
        """The address of its server."""
        ...


class SessionSource(Protocol):
    """Where sessions come from."""

    async def acquire(self, timeout_s: float) -> Any:
        """Wait up to so many seconds for a `SessionLease`."""
        ...

    async def release(self, lease: Any, *, healthy: bool) -> None:
        """Give a lease back. A session that is not healthy is closed and never lent again.

        Nor is one whose ``others_wait`` is true (`EnvClient.others_wait`): its episode was left before its end, and
        others wait for what it does.
        """
        ...


class ReplicaSource(SessionSource, Protocol):
    """A source of sessions that knows about their servers, such as a `ReplicaPool`. The engine asks where it can."""

    @property
    def max_sessions(self) -> int:
        """Sessions that it can lend at the same time at most."""
        ...

    async def explain(self, base_url: str) -> str:
        """Why the server of a session that was lost has died; "" where it has not."""
        ...
