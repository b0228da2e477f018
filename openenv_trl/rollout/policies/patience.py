"""When a request that failed is tried again, and when it is given up: decisions only, without a clock or a socket.

The delay doubles with each failure, with jitter over half of it, and never passes what is left of the time that the
settings allow (exponential back-off with equal jitter, as in AWS's Architecture Blog, 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from openenv_trl.rollout.policies.settings import EndpointSettings


class Trouble(str, Enum):
    """Why a request failed, where another try may succeed."""

    AWAY = "away"
    """No connection, a connection that broke, or a gateway's 502, 503 or 504."""
    BUSY = "busy"
    """429: the server has too much to do."""


@dataclass(frozen=True)
class TryAgain:
    """Try again after so many seconds."""

    delay_s: float


@dataclass(frozen=True)
class GiveUp:
    """Do not; the trouble has lasted so many seconds."""

    lasted_s: float


class Patience:
    """The failures of one request so far."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._since: float | None = None
        self._trouble: Trouble | None = None

    def failed(
        self,
        trouble: Trouble,
        now: float,
        jitter: float,
        *,
        retry_after_s: float | None = None,
        another_server: bool = False,
    ) -> TryAgain | GiveUp:
        """What to do after a failure.

        Args:
            trouble: The kind; its time is counted from the first of a row of failures of this kind.
            now: Seconds on any clock.
            jitter: A random number from 0 to 1.
            retry_after_s: What the server asked for; kept to, up to ``backoff_max_s``.
            another_server: Whether there is a server that is not known to be in trouble: then there is no delay.
        """
        if self._since is None or trouble is not self._trouble:
            self._since, self._trouble, self._failures = now, trouble, 0
        settings = self._settings
        allowed = settings.away_timeout_s if trouble is Trouble.AWAY else settings.busy_timeout_s
        lasted = now - self._since
        if lasted >= allowed:
            return GiveUp(lasted)
        if another_server:
            return TryAgain(0.0)
        delay = min(settings.backoff_s * 2.0 ** min(self._failures, 32), settings.backoff_max_s)
        self._failures += 1
        delay *= 0.5 + 0.5 * jitter
        if retry_after_s is not None:
            delay = max(delay, min(retry_after_s, settings.backoff_max_s))
        return TryAgain(min(delay, allowed - lasted))
