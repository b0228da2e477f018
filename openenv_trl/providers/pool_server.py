"""What the pool knows of one server: how many sessions it holds, how many it may hold, when to try again.

Two things are learned from the server's own answers. A refusal for lack of capacity lowers the number of
sessions that are opened without asking; later attempts go one at a time, after a growing pause, because other
users of the server come and go. A failure to connect sets the whole server aside for a growing pause, and then
one attempt tests it.

No clock, socket or task: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BackOff:
    """A pause that doubles with each failure in a row, and that chance spreads: pools do not come back together."""

    first_s: float = 0.1
    longest_s: float = 5.0
    jitter: float = 0.0
    """The part of the pause that is left to chance: 0.5 makes a pause of 2 s one of 1 to 2 s."""

    def pause_s(self, failures: int, chance: float = 0.0) -> float:
        """The pause after so many failures in a row.

        Args:
            failures: How many.
            chance: From 0 to 1: which of the pauses that the jitter allows.
        """
        # Beyond 2**30 only the longest pause is left, and larger powers overflow.
        longest = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return longest * (1.0 - self.jitter * chance)


def no_chance() -> float:
    """The chance that changes nothing."""
    return 0.0


@dataclass
class ServerSlots:
    """The sessions of one server, counted by what they do."""

    url: str
    limit: int
    """Sessions that the pool may hold at most."""
    refused_back_off: BackOff
    failed_back_off: BackOff
    in_use: int = 0
    connecting: int = 0
    closing: int = 0
    idle: list[int] = field(default_factory=list[int])
    refusals: int = 0
    """Refusals in a row."""
    retry_at: float = float("-inf")
    """When a session above the learned limit may be tried."""
    failures: int = 0
    """Failures to connect in a row; while there are any, attempts go one at a time."""
    aside_until: float = float("-inf")
    """When a failing server may be tried."""
    last_failure: str = ""
    """Why the last attempt brought nothing; empty where the server answered it."""
    chance: Callable[[], float] = no_chance
    """Spreads the pauses: gives numbers from 0 to 1."""
    retired: bool = False
    """Whether no new session is opened or lent; those in use go on."""

    def __post_init__(self) -> None:
        self.learned_limit = self.limit

    @property
    def open(self) -> int:
        """Sessions that take a place on the server."""
        return self.in_use + len(self.idle) + self.closing

    @property
    def load(self) -> int:
        """What the least-loaded server has the least of."""
        return self.in_use + self.connecting

    @property
    def allowed(self) -> int:
        """Sessions that it holds at most, as far as is known."""
        return min(self.limit, max(self.learned_limit, self.open))

    def may_connect(self, now: float) -> bool:
        """Whether one more session may be opened now."""
        planned = self.open + self.connecting
        if planned >= self.limit or now < self.aside_until or (self.failures and self.connecting):
            return False
        return planned < self.learned_limit or (now >= self.retry_at and not self.connecting)

    def may_connect_at(self, now: float) -> float:
        """When time alone makes ``may_connect`` true; infinity where it takes an event."""
        planned = self.open + self.connecting
        if planned >= self.limit or self.connecting:
            return float("inf")
        if planned < self.learned_limit:
            return max(now, self.aside_until)
        return max(now, self.aside_until, self.retry_at)

    def note_connected(self, now: float) -> None:
        """A connect went well; the caller counts the session as in use or idle right before."""
        self.connecting -= 1
        self.learned_limit = max(self.learned_limit, self.open)
        self.refusals, self.retry_at = 0, now
        self.failures, self.aside_until = 0, now
        self.last_failure = ""

    def note_refused(self, now: float) -> None:
        """The server has no place for a session."""
        self.connecting -= 1
        self.failures, self.aside_until = 0, now  # it answered
        self.last_failure = ""
        self.learned_limit = self.open
        # Refusals of attempts that were under way together count once.
        if now >= self.retry_at:
            self.refusals += 1
            self.retry_at = now + self.refused_back_off.pause_s(self.refusals, self.chance())

    def note_abandoned(self, unanswered: str) -> None:
        """The attempt was given up; ``unanswered`` says how long it waited, where its caller could not wait longer."""
        self.connecting -= 1
        self.last_failure = self.last_failure or unanswered

    def usage(self) -> str:
        """How things stand, for messages."""
        text = f"{self.url}: {self.in_use} in use of {self.limit}"
        if self.refusals:
            text += f" (the server refuses more than {self.learned_limit})"
        if self.last_failure:
            text += f" (does not answer: {self.last_failure})"
        elif self.connecting:
            text += f" ({self.connecting} attempts to open a session are unanswered)"
        return text

    def note_failed(self, now: float, reason: str) -> None:
        """The server did not answer."""
        self.connecting -= 1
        self.last_failure = reason
        if now >= self.aside_until:
            self.failures += 1
            self.aside_until = now + self.failed_back_off.pause_s(self.failures, self.chance())
