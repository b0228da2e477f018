"""A server's session as a state machine: events in, decisions out.

It owns no environment, no socket, no task, no clock.

              opened              begin(reset)            finish
    OPENING ─────────► READY ───────────────────► BUSY ───────────► IN_EPISODE (or READY, once an episode is over)
       │                 │ request_close, lose      │ request_close, lose: remembered until finish
       │ open_failed     ▼                          ▼
       └────► CLOSED ◄─── CLOSING ◄──────────────────
                  closed     ▲                      │ abandon: the slot is free, the call still runs
                             └────── ABANDONED ◄────┘
                              finish

Invariants, whatever the order of events: one call at a time; the environment is closed once if it was ever opened, and
never under a running call; the session's slot is released once: after the environment was closed, or when a call or a
close that does not end was given up.
"""

from __future__ import annotations

from enum import Enum

from openenv_trl.errors import OpenEnvError, SessionLostError, SessionStateError


class SessionState(Enum):
    """Where a session stands."""

    OPENING = "opening"
    READY = "ready"
    IN_EPISODE = "in an episode"
    BUSY = "busy"
    ABANDONED = "abandoned under a call that does not end"
    CLOSING = "closing"
    CLOSED = "closed"


class Decision(Enum):
    """What the session's owner has to do after an event."""

    GO_ON = "go on"
    CLOSE_ENVIRONMENT = "close the environment, then report closed"
    RELEASE_SLOT = "release the session's slot"


class SessionEnd(str, Enum):
    """Why a session ended."""

    CLOSED = "closed"
    OPEN_FAILED = "open_failed"
    DEADLINE = "deadline"
    WORKER_DIED = "worker_died"
    CANCELLED = "cancelled"
    IDLE = "idle"
    DETACHED = "detached"
    DRAINED = "drained"
    SHUTDOWN = "shutdown"


# Looked up at each call; an enum's members cost more where they stand.
_READY, _IN_EPISODE, _BUSY = SessionState.READY, SessionState.IN_EPISODE, SessionState.BUSY
_GO_ON = Decision.GO_ON


class Session:
    """One session. Times are seconds of any one monotonic clock, given by the caller.

    Attributes:
        session_id: The session's name.
        state: Where the session stands. Only its own events change it.
        call: The call that is running, or "".
        opened_at: When it began.
        last_activity_at: When its last reset or step ended, or ``opened_at``.
        resting_since: When its last call of any kind ended, or it was opened.
        step_count: Steps taken in all its episodes.
        end: Why the session ended, or is going to; None while it lives.
    """

    __slots__ = (
        "_holds_slot",
        "_lost_because",
        "_resting_state",
        "call",
        "end",
        "last_activity_at",
        "opened_at",
        "resting_since",
        "session_id",
        "state",
        "step_count",
    )

    def __init__(self, session_id: str, now: float) -> None:
        self.session_id = session_id
        self.opened_at = now
        self.last_activity_at = now
        self.resting_since = now
        self.step_count = 0
        self.state = SessionState.OPENING
        self.call = ""
        self.end: SessionEnd | None = None
        self._resting_state = _READY
        self._lost_because = ""
        self._holds_slot = True

    @property
    def holds_slot(self) -> bool:
        """Whether its slot has not been released yet."""
        return self._holds_slot

    @property
    def is_resting(self) -> bool:
        """Whether it could take a call now."""
        return self.state is _READY or self.state is _IN_EPISODE

    @property
    def is_episode_over(self) -> bool:
        """Whether the episode that was begun last is over."""
        return self._resting_state is _READY and self.last_activity_at != self.opened_at

    def opened(self, now: float | None = None) -> Decision:
        """The environment is built; the time, if given, is when its rest begins."""
        self._require(SessionState.OPENING, "its environment was reported as built, but it was built already")
        self.state = _READY
        self.resting_since = self.opened_at if now is None else now
        return _GO_ON if self.end is None else self._begin_closing()

    def open_failed(self) -> Decision:
        """The environment could not be built."""
        self._require(SessionState.OPENING, "its environment was reported as failed, but it was built already")
        self.state = SessionState.CLOSED
        self.end = self.end or SessionEnd.OPEN_FAILED
        return self._release_slot()

    def begin(self, call: str) -> None:
        """A call ("reset", "step", "state", ...) begins.

        Raises:
            SessionStateError: The session cannot take a call now; the text says why.
            SessionLostError: It never will again, and not because somebody closed it.
        """
        state = self.state
        if state is not _READY and state is not _IN_EPISODE:
            raise self._refusal(call)
        self._resting_state = state
        self.state = _BUSY
        self.call = call

    def finish(self, now: float, *, done: bool | None = None) -> Decision:
        """The call has ended, well or badly.

        Args:
            now: The time.
            done: Whether the episode is over, after a reset or step that brought an observation; None after anything
                else.
        """
        if self.state is not _BUSY:
            self._require(SessionState.ABANDONED, "a call was reported as ended, but none was running")
        call, self.call = self.call, ""
        self.resting_since = now
        if call == "step" or call == "reset":
            self.last_activity_at = now
        if done is not None:
            if call == "step":
                self.step_count += 1
            self._resting_state = _READY if done else _IN_EPISODE
        self.state = self._resting_state
        return _GO_ON if self.end is None else self._begin_closing()

    def request_close(self, end: SessionEnd = SessionEnd.CLOSED) -> Decision:
        """The session shall end: at once, or when its opening or its running call is over. May come more than once."""
        self.end = self.end or end
        return self._begin_closing() if self.is_resting else _GO_ON

    def lose(self, end: SessionEnd, because: str) -> Decision:
        """The session shall end, though its client did not ask for it: later calls are told why.

        Args:
            end: The kind of end.
            because: Completes "Session ... is lost: ".
        """
        self._lost_because = self._lost_because or because
        return self.request_close(end)

    def abandon(self, end: SessionEnd, because: str) -> Decision:
        """Nobody waits any longer for the call that runs, or for the closing: the slot is free before it ends."""
        self._lost_because = self._lost_because or because
        self.end = self.end or end
        if self.state is not SessionState.CLOSING:
            self._require(_BUSY, "its call was given up, but none was running")
            self.state = SessionState.ABANDONED
        return self._release_slot()

    def closed(self) -> Decision:
        """The environment is closed."""
        self._require(SessionState.CLOSING, "its environment was reported as closed, but it was not closing")
        self.state = SessionState.CLOSED
        return self._release_slot()

    @property
    def lost_because(self) -> str:
        """Why the session ended though its client did not close it; empty where that is not so."""
        return self._lost_because

    def lost(self, call: str) -> SessionLostError | None:
        """Return the error for a call on a session that was lost; None on any other."""
        if not self._lost_because:
            return None
        text = f"Session {self.session_id} is lost: {self._lost_because}. Open a new one."
        return SessionLostError(text, phase=call, session_id=self.session_id)

    def _begin_closing(self) -> Decision:
        self.state = SessionState.CLOSING
        return Decision.CLOSE_ENVIRONMENT

    def _release_slot(self) -> Decision:
        if not self._holds_slot:
            return _GO_ON
        self._holds_slot = False
        return Decision.RELEASE_SLOT

    def _refusal(self, call: str) -> OpenEnvError:
        state = self.state
        if state is SessionState.OPENING:
            return self._error(f"cannot {call} yet: its environment is still being built")
        if state is _BUSY:
            return self._error(
                f"cannot {call} now: its {self.call} is still running, and a session does one thing at a time"
            )
        lost = self.lost(call)
        if lost is not None:
            return lost
        if state is SessionState.CLOSING:
            return self._error(f"cannot {call} any more: it is closing")
        return self._error(f"cannot {call} any more: it is closed")

    def _require(self, state: SessionState, otherwise: str) -> None:
        if self.state is not state:
            raise self._error(f"{otherwise} (it is {self.state.value})")

    def _error(self, text: str) -> SessionStateError:
        return SessionStateError(f"Session {self.session_id}: {text}.", session_id=self.session_id)
