"""A server's session as a state machine: events in, decisions out.

It owns no environment, no socket, no task, no clock.

              opened              begin(reset)            finish
    OPENING ─────────► READY ───────────────────► BUSY ───────────► IN_EPISODE (or READY, once an episode is over)
       │                 │ request_close            │ request_close: remembered until finish
       │ open_failed     ▼                          ▼
       └────► CLOSED ◄─── CLOSING ◄──────────────────
                  closed

Invariants, whatever the order of events: one call at a time; the environment is closed once if it was ever opened, and
never under a running call; the session's slot is released once, after the environment was closed.
"""

from __future__ import annotations

from enum import Enum

from openenv_trl.errors import SessionStateError


class SessionState(Enum):
    """Where a session stands."""

    OPENING = "opening"
    READY = "ready"
    IN_EPISODE = "in an episode"
    BUSY = "busy"
    CLOSING = "closing"
    CLOSED = "closed"


class Decision(Enum):
    """What the session's owner has to do after an event."""

    GO_ON = "go on"
    CLOSE_ENVIRONMENT = "close the environment, then report closed"
    RELEASE_SLOT = "release the session's slot"


class Session:
    """One session. Times are seconds of any one monotonic clock, given by the caller.

    Attributes:
        session_id: The session's name.
        opened_at: When it began.
        last_activity_at: When its last reset or step ended, or ``opened_at``.
        step_count: Steps taken in all its episodes.
    """

    def __init__(self, session_id: str, now: float) -> None:
        self.session_id = session_id
        self.opened_at = now
        self.last_activity_at = now
        self.step_count = 0
        self._state = SessionState.OPENING
        self._resting_state = SessionState.READY
        self._call = ""
        self._close_wanted = False

    @property
    def state(self) -> SessionState:
        """Where the session stands."""
        return self._state

    @property
    def call(self) -> str:
        """The call that is running, or ""."""
        return self._call

    def opened(self) -> Decision:
        """The environment is built."""
        self._require(SessionState.OPENING, "its environment was reported as built, but it was built already")
        self._state = SessionState.READY
        return self._begin_closing() if self._close_wanted else Decision.GO_ON

    def open_failed(self) -> Decision:
        """The environment could not be built."""
        self._require(SessionState.OPENING, "its environment was reported as failed, but it was built already")
        self._state = SessionState.CLOSED
        return Decision.RELEASE_SLOT

    def begin(self, call: str) -> None:
        """A call ("reset", "step", "state", ...) begins.

        Raises:
            SessionStateError: The session cannot take a call now; the text says why.
        """
        state = self._state
        if state is SessionState.OPENING:
            raise self._error(f"cannot {call} yet: its environment is still being built")
        if state is SessionState.BUSY:
            raise self._error(
                f"cannot {call} now: its {self._call} is still running, and a session does one thing at a time"
            )
        if state is SessionState.CLOSING:
            raise self._error(f"cannot {call} any more: it is closing")
        if state is SessionState.CLOSED:
            raise self._error(f"cannot {call} any more: it is closed")
        self._resting_state = state
        self._state = SessionState.BUSY
        self._call = call

    def finish(self, now: float, *, done: bool | None = None) -> Decision:
        """The call has ended, well or badly.

        Args:
            now: The time.
            done: Whether the episode is over, after a reset or step that brought an observation; None after anything
                else.
        """
        self._require(SessionState.BUSY, "a call was reported as ended, but none was running")
        call, self._call = self._call, ""
        if call in ("reset", "step"):
            self.last_activity_at = now
        if done is not None:
            self.step_count += call == "step"
            self._resting_state = SessionState.READY if done else SessionState.IN_EPISODE
        self._state = self._resting_state
        return self._begin_closing() if self._close_wanted else Decision.GO_ON

    def request_close(self) -> Decision:
        """The session shall end: at once, or when its opening or its running call is over. May come more than once."""
        self._close_wanted = True
        return self._begin_closing() if self._state in _RESTING else Decision.GO_ON

    def closed(self) -> Decision:
        """The environment is closed."""
        self._require(SessionState.CLOSING, "its environment was reported as closed, but it was not closing")
        self._state = SessionState.CLOSED
        return Decision.RELEASE_SLOT

    def _begin_closing(self) -> Decision:
        self._state = SessionState.CLOSING
        return Decision.CLOSE_ENVIRONMENT

    def _require(self, state: SessionState, otherwise: str) -> None:
        if self._state is not state:
            raise self._error(f"{otherwise} (it is {self._state.value})")

    def _error(self, text: str) -> SessionStateError:
        return SessionStateError(f"Session {self.session_id}: {text}.", session_id=self.session_id)


_RESTING = (SessionState.READY, SessionState.IN_EPISODE)
