"""Waiting for something asynchronous in code that is not: in a worker thread, on the server's event loop."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from openenv_trl.errors import ConfigurationError


def wait_for(awaitable: Awaitable[Any], *, what: str) -> Any:
    """Wait for an awaitable in a thread without an event loop, and return what it gives.

    In a thread that works for an event loop (a server's) it runs there, elsewhere in a loop of its own.

    Args:
        awaitable: Not started yet.
        what: What is asynchronous, for the error.

    Raises:
        ConfigurationError: This thread runs an event loop, which would wait for itself.
    """
    import anyio
    import anyio.from_thread

    async def outcome() -> tuple[Any, Exception | None]:
        # Kept apart from what anyio raises where there is no loop to run this on.
        try:
            return await awaitable, None
        except Exception as error:
            return None, error

    try:
        value, error = anyio.from_thread.run(outcome)
    except RuntimeError:
        try:
            value, error = anyio.run(outcome)
        except RuntimeError:
            close = getattr(awaitable, "close", None)
            if close is not None:
                close()
            raise ConfigurationError(
                f"{what} is asynchronous, but was called by a synchronous hook on the event loop. "
                "Define reset_async and step_async on the environment, or leave EXECUTION at 'auto'."
            ) from None
    if error is not None:
        raise error
    return value
