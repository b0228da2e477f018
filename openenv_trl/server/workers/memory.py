"""Memory that the worker processes of one server share: who is up, whose turn it is, and the counts of sessions.

It is a file without a name, mapped by the parent and by each worker. Every change happens under one lock, which the
kernel frees when its holder dies. A worker writes only its own records; a dead worker's are zeroed by the parent.
"""

from __future__ import annotations

import fcntl
import mmap
import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from openenv_trl.errors import ConfigurationError

MAX_APPLICATIONS = 16
"""Applications that one worker process can hold, each with a limit of its own."""

_TURN = struct.Struct("<Q")
_COUNTS = struct.Struct("<IIdd")
_STANDINGS = _TURN.size  # where the workers' standings begin, a byte each


class Standing(IntEnum):
    """Whether a worker can be given work."""

    DOWN = 0
    UP = 1
    LEAVING = 2
    """It takes what names its sessions, and nothing new."""


@dataclass(slots=True)
class WorkerCounts:
    """One worker's sessions of one application.

    Attributes:
        active: Slots it holds.
        waiting: Clients that wait for one in it.
        since: When the first of them began to wait; 0.0 if nobody waits.
        seen: When it last said so.
    """

    active: int = 0
    waiting: int = 0
    since: float = 0.0
    seen: float = 0.0


def size_of(workers: int) -> int:
    """Return how many bytes the workers' memory takes."""
    return _TURN.size + workers * (1 + MAX_APPLICATIONS * _COUNTS.size)


class SharedMemory:
    """The mapped file.

    Args:
        fd: The file; it is `size_of` bytes long.
        workers: How many workers there are.
    """

    def __init__(self, fd: int, workers: int) -> None:
        self.workers = workers
        self._fd = fd
        self._map = mmap.mmap(fd, size_of(workers))

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep every other process out."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def take_turn(self) -> int | None:
        """Return the worker whose turn it is, of those that are up; None if none is."""
        with self.locked():
            (turn,) = _TURN.unpack_from(self._map, 0)
            for ahead in range(self.workers):
                worker = (turn + ahead) % self.workers
                if self.standing(worker) is Standing.UP:
                    _TURN.pack_into(self._map, 0, worker + 1)
                    return worker
        return None

    def standing(self, worker: int) -> Standing:
        """Return whether a worker is there."""
        return Standing(self._map[_STANDINGS + worker])

    def set_standing(self, worker: int, standing: Standing) -> None:
        """Note whether a worker is there."""
        self._map[_STANDINGS + worker] = standing

    def forget(self, worker: int) -> None:
        """A worker is gone: nothing of it counts any more."""
        with self.locked():
            self.set_standing(worker, Standing.DOWN)
            for application in range(MAX_APPLICATIONS):
                self.write(application, worker, WorkerCounts())

    def read(self, application: int) -> list[WorkerCounts]:
        """Return each worker's counts of one application."""
        return [
            WorkerCounts(*_COUNTS.unpack_from(self._map, self._offset(application, worker)))
            for worker in range(self.workers)
        ]

    def write(self, application: int, worker: int, counts: WorkerCounts) -> None:
        """Replace one worker's counts of one application; call it under the lock."""
        _COUNTS.pack_into(
            self._map,
            self._offset(application, worker),
            counts.active,
            counts.waiting,
            counts.since,
            counts.seen,
        )

    def _offset(self, application: int, worker: int) -> int:
        if application >= MAX_APPLICATIONS:
            raise ConfigurationError(
                f"A server with several workers can hold {MAX_APPLICATIONS} applications, and this is one more. "
                "Serve some of them apart, or use one worker."
            )
        return _STANDINGS + self.workers + (application * self.workers + worker) * _COUNTS.size
