"""How many replicas so many sessions need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """A number of replicas, and for which numbers of sessions it is the right one."""

    replicas: int
    lowest: float
    highest: float


def size_for(sessions: int, capacities: Sequence[int], each: int, least: int, most: int) -> Size:
    """How many replicas are needed.

    Args:
        sessions: That are needed in all.
        capacities: Sessions that each replica holds that is there; the largest are counted first.
        each: Sessions that one more would hold.
        least: Replicas at least.
        most: Replicas at most.
    """
    there = sorted(capacities, reverse=True)
    replicas, held, lowest = 0, 0, float("-inf")
    while replicas < most and (held < sessions or replicas < least):
        if replicas >= least:
            lowest = held + 1
        held += there[replicas] if replicas < len(there) else each
        replicas += 1
    return Size(replicas, lowest, float("inf") if replicas >= most else held)
