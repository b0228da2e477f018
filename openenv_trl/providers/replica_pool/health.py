"""Asking the servers of a pool for their health."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from openenv_trl.providers.base import Replica

if TYPE_CHECKING:
    from openenv_trl.providers.web_health import WebHealth


class HealthChecks:
    """Asks servers for their health, on the event loop that it is first used on.

    Args:
        timeout_s: Seconds for an answer.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._web: WebHealth | None = None
        self._making = anyio.Lock()

    async def ask(self, replica: Replica, path: str | None) -> str:
        """Ask once; returns "" for a healthy answer, otherwise what came instead.

        Args:
            replica: Which server.
            path: The path that answers 200 while the server is healthy; None for a server that may have no health
                check: whatever it answers to ``/health`` then, but for an error of its own, shows that it lives.
        """
        async with self._making:
            if self._web is None:
                # In a thread: the import takes a tenth of a second, and the loop has episodes to play.
                self._web = await anyio.to_thread.run_sync(_web_health)
        with anyio.move_on_after(self._timeout_s):
            answer = await self._web.ask(f"{replica.base_url}{path or '/health'}", replica.headers)
            return "" if path is None and answer.startswith(("answered 3", "answered 4")) else answer
        return f"no answer within {self._timeout_s:g} s"

    async def close(self) -> None:
        """Let go of all connections."""
        if self._web is not None:
            await self._web.close()


def _web_health() -> WebHealth:
    from openenv_trl.providers.web_health import WebHealth

    return WebHealth()
