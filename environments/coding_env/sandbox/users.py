"""A range of users for each sandbox of a root server, so that no two on a machine give their sessions the same."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

FIRST = 1_900_000
"""Above what systems give to people and containers as a rule."""
_BLOCKS = 1000
_TRIES = 200


class UserRange:
    """Users that nobody else's sessions have.

    A range is claimed by a name in the kernel's abstract namespace of sockets, which goes with its process, however
    that ends. Which one is drawn at random, so that servers of other network namespaces hardly ever have the same.

    Args:
        size: Users in it.
    """

    def __init__(self, size: int) -> None:
        self._claim: socket.socket | None = None
        self.first = FIRST
        """The first of them."""
        mapped = _mapped()
        starts = range(FIRST, FIRST + _BLOCKS * size, size)
        allowed = [at for at in starts if any(low <= at and at + size <= high for low, high in mapped)] or [FIRST]
        for self.first in random.SystemRandom().sample(allowed, min(_TRIES, len(allowed))):
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            with contextlib.suppress(OSError):
                claim.bind(f"\0openenv-coding-users-{self.first}")
                self._claim = claim
                return
            claim.close()

    def close(self) -> None:
        """Give them back. May be called again."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None


def _mapped() -> list[tuple[int, int]]:
    """The users of this user namespace: the first of each range, and the one after its last."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return [(0, (1 << 32) - 1)]
    return [(int(first), int(first) + int(count)) for first, _, count in map(str.split, lines)]
