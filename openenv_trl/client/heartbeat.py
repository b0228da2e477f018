"""When to ping a peer that says nothing, and when to give it up. Owns no clock, no timer and no socket.

A peer from which anything came is alive. One that was silent for an interval is pinged; one that stays silent after
that is dead. Where our own loop stood still meanwhile (it runs other work too), an answer may lie unread: the peer is
asked again.
"""

from __future__ import annotations

from enum import Enum

_STOOD_STILL_S = 1.0  # a wake so much later than asked for means that the loop was busy, not that the peer was silent


class Pulse(Enum):
    """What to do now."""

    WAIT = "wait"
    PING = "ping"
    DEAD = "dead"


class Heartbeat:
    """The decisions of one connection.

    Args:
        interval_s: Seconds of silence before a ping.
        timeout_s: Seconds for the answer to it; None for any time.
    """

    def __init__(self, interval_s: float, timeout_s: float | None) -> None:
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._asked = False
        self.wake_at = 0.0
        """When to call `wake` next."""

    def start(self, now: float) -> None:
        """The connection is open."""
        self.wake_at = now + self._interval_s

    def wake(self, now: float, heard: bool) -> Pulse:
        """Decide, at or after `wake_at`.

        Args:
            now: The time.
            heard: Whether anything came from the peer since the last call.
        """
        if heard:
            self._asked = False
            self.wake_at = now + self._interval_s
            return Pulse.WAIT
        if not self._asked or self._timeout_s is None or now - self.wake_at > _STOOD_STILL_S:
            self._asked = True
            self.wake_at = now + (self._interval_s if self._timeout_s is None else self._timeout_s)
            return Pulse.PING
        return Pulse.DEAD
