"""How an environment tells its caller that a long tool call gets on.

Where the caller did not ask, or cannot be told, a report costs next to nothing and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

ProgressListener = Callable[[float, "float | None", "str | None"], None]

progress_listener: ContextVar[ProgressListener | None] = ContextVar("progress_listener", default=None)
"""Who hears of progress in this context. It may be called from any thread."""


def report_progress(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Tell the caller how far a tool call has come. Use it inside a tool's method, synchronous or not.

    A client of the Model Context Protocol that asked for progress gets a notification each time, and gives the call
    more time for it.

    Args:
        progress: How far; each time more than before.
        total: What ``progress`` will be at the end; None if that is not known.
        message: What is going on, for a person to read.

    Example:
        >>> @tool
        ... def build(self) -> str:
        ...     for done, part in enumerate(self.parts):
        ...         report_progress(done, len(self.parts), f"building {part}")
    """
    listener = progress_listener.get()
    if listener is not None:
        listener(progress, total, message)
