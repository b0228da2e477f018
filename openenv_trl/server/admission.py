"""How a session comes by its slot: at once, or in its turn.

The thin shell of `WaitingLine` and a ledger of slots. A slot that becomes free goes to the first in the line, before
anybody who comes later; a waiter that is cancelled with its slot already given passes it on.
"""

from __future__ import annotations

import time

import anyio

from openenv_trl.errors import SessionCapacityError
from openenv_trl.server.capacity import SlotLedger
from openenv_trl.server.metrics import ServerMetrics
from openenv_trl.server.waiting_line import WaitingLine

_CLOSED = "The server is shutting down and takes no new sessions. Try another server, or later."


class Admission:
    """Hands out the slots.

    Args:
        ledger: The slots.
        max_waiting: Clients that may wait at once.
        metrics: Told who waits.
    """

    def __init__(self, ledger: SlotLedger, max_waiting: int, metrics: ServerMetrics) -> None:
        self._ledger = ledger
        self._line = WaitingLine(max_waiting)
        self._max_waiting = max_waiting
        self._metrics = metrics
        self._turns: dict[str, anyio.Event] = {}
        self._closed = False
        ledger.watch(self._serve_the_line)

    @property
    def has_waiters(self) -> bool:
        """Whether anybody waits for a slot."""
        return len(self._line) > 0

    async def take(self, session_id: str, wait_s: float) -> None:
        """Take a slot for the session, waiting for it up to so many seconds.

        Raises:
            SessionCapacityError: No slot was free in that time, too many wait already, or the server is shutting down.
        """
        if self._closed:
            raise self._refusal(_CLOSED)
        if len(self._line) == 0:
            try:
                self._ledger.reserve(session_id)
                return
            except SessionCapacityError:
                if wait_s <= 0:
                    raise
        elif wait_s <= 0:
            raise self._refusal(None)
        await self._wait(session_id, wait_s)

    def close(self) -> None:
        """Refuse whoever waits, and whoever comes from now on."""
        self._closed = True
        for turn in self._turns.values():
            turn.set()

    async def _wait(self, session_id: str, wait_s: float) -> None:
        if not self._line.join(session_id, time.monotonic() + wait_s):
            text = f"The server is at capacity, and {self._max_waiting} clients wait already (max_waiting)."
            raise self._refusal(text)
        turn = self._turns[session_id] = anyio.Event()
        self._metrics.session_waits()
        keeps_slot = False
        try:
            with anyio.move_on_after(wait_s):
                await turn.wait()
            keeps_slot = True
        finally:
            del self._turns[session_id]
            served = self._line.leave(session_id)
            if served and not keeps_slot:
                self._ledger.release(session_id)
            self._metrics.session_wait_ended()
        if served:
            return
        self._serve_the_line()  # whoever stood behind one whose time was over
        status = self._ledger.status
        text = (
            f"Server at capacity: {status.active_sessions}/{status.max_sessions} sessions active, and none ended in "
            f"the {wait_s:g} s that the client would wait. Wait longer, or start the server with a larger "
            "max_concurrent_envs."
        )
        raise self._refusal(_CLOSED if self._closed else text)

    def _serve_the_line(self) -> None:
        now = time.monotonic()
        while not self._closed and (session_id := self._line.first(now)) is not None:
            try:
                self._ledger.reserve(session_id)
            except SessionCapacityError:
                return
            self._line.serve(session_id)
            self._turns[session_id].set()

    def _refusal(self, text: str | None) -> SessionCapacityError:
        status = self._ledger.status
        return SessionCapacityError(status.active_sessions, status.max_sessions, text, draining=self._closed)
