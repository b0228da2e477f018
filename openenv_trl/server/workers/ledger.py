"""The slots of one application, counted over all worker processes.

It does for several workers what `CapacityLedger` does for one. Clients that wait do so in their own worker, which looks
every few tens of milliseconds whether another one has released a slot. Across workers, the client that has waited
longest goes first: each worker says since when its first one waits, and none takes a slot that an earlier one in
another worker could have. A worker that has not said so for a while no longer counts: it may be stuck.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from openenv_trl.errors import ConfigurationError, SessionCapacityError, SessionStateError
from openenv_trl.server.capacity import ServerCapacityStatus
from openenv_trl.server.workers.memory import SharedMemory, WorkerCounts

STALE_S = 1.0
"""How long a worker's word that somebody waits in it counts. It says so again with each look."""

_LOOK_S = 0.025


class SharedLedger:
    """This worker's hold on the slots that all workers share.

    Args:
        memory: What the workers share.
        application: Which of the process's applications this is, from 0.
        worker: This worker's number.
        max_sessions: Sessions at once, in all workers together.
        clock: Seconds of the machine's monotonic clock, which all processes share.

    Attributes:
        count_waiting: Tells how many clients wait in this worker.
    """

    def __init__(
        self,
        memory: SharedMemory,
        application: int,
        worker: int,
        max_sessions: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_sessions < 1:
            raise ConfigurationError(f"max_concurrent_envs={max_sessions}: a server needs room for one session.")
        self.max_sessions = max_sessions
        self._memory = memory
        self._application = application
        self._worker = worker
        self._clock = clock
        self.count_waiting: Callable[[], int] = lambda: 1
        self._holders: set[str] = set()
        self._watchers: list[Callable[[], None]] = []
        self._refused: tuple[str, float] | None = None  # the last to be, and when it first was
        self._look: asyncio.TimerHandle | None = None
        memory.read(application)  # raises where there is no room for one more application

    @property
    def status(self) -> ServerCapacityStatus:
        """How full the server is, all workers together."""
        active = sum(each.active for each in self._memory.read(self._application))
        return ServerCapacityStatus(active_sessions=active, max_sessions=self.max_sessions)

    @property
    def waiting(self) -> int:
        """Clients that wait for a slot, in all workers, as of their last look."""
        return sum(each.waiting for each in self._memory.read(self._application))

    def reserve(self, session_id: str) -> None:
        """Take a slot.

        Raises:
            SessionCapacityError: All are taken, or the free ones belong to those who waited longer in other workers.
            SessionStateError: This session has one already.
        """
        if session_id in self._holders:
            raise SessionStateError(f"Session {session_id} already holds a slot.", session_id=session_id)
        now = self._clock()
        since = self._refused[1] if self._refused is not None and self._refused[0] == session_id else now
        with self._memory.locked():
            counts = self._memory.read(self._application)
            taken = may_take(counts, self._worker, self.max_sessions, since, now)
            if taken:
                mine = counts[self._worker]
                mine.active += 1
                self._memory.write(self._application, self._worker, mine)
        if not taken:
            self._refused = (session_id, since)
            self._look_again()
            raise SessionCapacityError(sum(each.active for each in counts), self.max_sessions)
        self._holders.add(session_id)

    def release(self, session_id: str) -> None:
        """Give a slot back.

        Raises:
            SessionStateError: The session holds none: it never had one, or gave it back before.
        """
        if session_id not in self._holders:
            raise SessionStateError(f"Session {session_id} holds no slot to release.", session_id=session_id)
        self._holders.remove(session_id)
        with self._memory.locked():
            mine = self._memory.read(self._application)[self._worker]
            mine.active -= 1
            self._memory.write(self._application, self._worker, mine)
        for slot_may_be_free in self._watchers:
            slot_may_be_free()

    def watch(self, slot_may_be_free: Callable[[], None]) -> None:
        """Have the function called, on the event loop, whenever a slot may have become free."""
        self._watchers.append(slot_may_be_free)

    def _look_again(self) -> None:
        if self._look is None and self._watchers:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_now)

    def _look_now(self) -> None:
        """Have whoever waits try again. When nobody was refused by that, nobody waits any more."""
        self._look = None
        for slot_may_be_free in self._watchers:
            slot_may_be_free()
        since = self._refused[1] if self._look is not None and self._refused is not None else None
        if since is None:
            self._refused = None
        self._tell_waiting(since)

    def _tell_waiting(self, since: float | None) -> None:
        with self._memory.locked():
            mine = self._memory.read(self._application)[self._worker]
            mine.waiting = 0 if since is None else max(1, self.count_waiting())
            mine.since, mine.seen = since or 0.0, self._clock()
            self._memory.write(self._application, self._worker, mine)


def may_take(counts: Sequence[WorkerCounts], worker: int, most: int, since: float, now: float) -> bool:
    """Whether a worker's client that waits since then may have a slot now.

    Example:
        >>> may_take([WorkerCounts(active=1), WorkerCounts(waiting=1, since=5.0, seen=9.0)], 0, 2, 7.0, 9.0)
        False
    """
    free = most - sum(each.active for each in counts)
    before = sum(
        1  # its first one; its others have their turn after that
        for index, each in enumerate(counts)
        if index != worker and each.waiting and each.since < since and now - each.seen < STALE_S
    )
    return free > before
