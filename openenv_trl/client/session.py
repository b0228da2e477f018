"""A client's session as a state machine. It owns no socket, no task, no clock.

            connecting            connected           begin
    NEW ──────────────► CONNECTING ─────────► OPEN ◄────────► BUSY
     ▲  connect_failed      │                  │    replied    │
     └──────────────────────┘                  └────► LOST ◄───┘          closed: from anywhere to CLOSED

Invariants: one call at a time; a session that was lost or closed never takes a call again, so that no call ever runs
on a fresh environment that nobody reset.
"""

from __future__ import annotations

from enum import Enum

from openenv_trl.errors import OpenEnvError, SessionLostError, SessionStateError


class ClientState(Enum):
    """Where a client's session stands."""

    NEW = "not connected"
    CONNECTING = "connecting"
    OPEN = "open"
    BUSY = "waiting for a reply"
    LOST = "lost"
    CLOSED = "closed"


class ClientSession:
    """One session, as its client sees it.

    Args:
        url: The server's address, for messages.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._state = ClientState.NEW
        self._call = ""
        self._reason = ""

    @property
    def state(self) -> ClientState:
        """Where the session stands."""
        return self._state

    def connecting(self) -> None:
        """A connection is being made.

        Raises:
            SessionLostError: It was connected before, and lost.
            SessionStateError: It is connected or connecting already, or closed.
        """
        if self._state is not ClientState.NEW:
            raise self._refusal("connect")
        self._state = ClientState.CONNECTING

    def connected(self) -> None:
        """The server holds an environment for this session."""
        self._require(ClientState.CONNECTING, "connected")
        self._state = ClientState.OPEN

    def connect_failed(self) -> None:
        """No session came of it; another try is allowed."""
        if self._state is not ClientState.CLOSED:
            self._require(ClientState.CONNECTING, "connect_failed")
            self._state = ClientState.NEW

    def begin(self, call: str) -> None:
        """A request is about to be sent.

        Raises:
            SessionLostError: The session is gone.
            SessionStateError: It is not open, or another call still waits for its reply.
        """
        if self._state is not ClientState.OPEN:
            raise self._refusal(call)
        self._state = ClientState.BUSY
        self._call = call

    def replied(self) -> None:
        """The reply to the running call has come."""
        if self._state is ClientState.BUSY:
            self._state = ClientState.OPEN

    def lost(self, reason: str) -> SessionLostError:
        """The session is gone. Returns the error to raise; the first reason is kept for all later calls."""
        reason = reason.rstrip(".")  # it may be a sentence of the server's
        if self._state in (ClientState.LOST, ClientState.CLOSED):
            return SessionLostError(f"The session on {self._url} is gone: {reason}.", phase=self._call)
        self._state = ClientState.LOST
        self._reason = reason
        return SessionLostError(f"The session on {self._url} is lost: {reason}.", phase=self._call)

    def closed(self) -> None:
        """The user has closed the client."""
        self._state = ClientState.CLOSED

    def _refusal(self, call: str) -> OpenEnvError:
        if self._state is ClientState.LOST:
            return SessionLostError(
                f"Cannot {call}: the session on {self._url} was lost ({self._reason}), and its environment with it. "
                "Connect a new client and begin a new episode.",
                phase=call,
            )
        advice = {
            ClientState.NEW: "it is not connected; call connect() first",
            ClientState.CONNECTING: "it is still connecting",
            ClientState.OPEN: "it is connected already",
            ClientState.BUSY: f"its {self._call} still waits for a reply",
            ClientState.CLOSED: "the client is closed; make a new one",
        }[self._state]
        return SessionStateError(f"Cannot {call} on {self._url}: {advice}.", phase=call)

    def _require(self, state: ClientState, event: str) -> None:
        if self._state is not state:
            raise SessionStateError(
                f"'{event}' was reported for the session on {self._url}, which is {self._state.value}."
            )
