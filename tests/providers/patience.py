"""Starts that are to fail for want of time, where the machine may be too slow for what is to be seen before they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

TRIES_S = (1.0, 6.0, 60.0)
"""What is given to one try after another."""


async def told_in_time(attempt: Callable[[float], Awaitable[str]], *words: str) -> str:
    """Has something fail for want of time, with more of it until it got so far that it can tell the words.

    Args:
        attempt: Takes the seconds that it may last, and returns what was told.
        words: What is told only of a server that had the time to begin.

    Returns:
        What was told last: it is the caller's to judge.
    """
    told = ""
    for seconds in TRIES_S:
        told = await attempt(seconds)
        if all(word in told for word in words):
            break
    return told
