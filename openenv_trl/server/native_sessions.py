"""The sessions of the native wire, which outlive their connections."""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING

from openenv_trl.errors import SessionNotFoundError
from openenv_trl.server.departed import COMES_BACK_S
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.wire import native_frames as frames
from openenv_trl.wire.faults import Fault, WSErrorCode, fault_of
from openenv_trl.wire.native_codec import pack

if TYPE_CHECKING:
    from openenv_trl.server.host import SessionHost
    from openenv_trl.server.native_dialogue import NativeDialogue
    from openenv_trl.server.settings import AppSettings


class NativeSession:
    """A session of this wire.

    Attributes:
        number: The client's number for it; the same on every connection.
        token: What its client shows to take it up again.
        call: The number of the newest call.
        reply: The newest call's reply; None while it runs.
        started: Whether the newest call has begun.
        closing: The number of the call that asked for the end, or 0.
        dialogue: The connection that holds it; None between two.
    """

    __slots__ = ("call", "closing", "dialogue", "hosted", "number", "reply", "started", "token")

    def __init__(self, number: int, hosted: HostedSession, dialogue: NativeDialogue, call: int) -> None:
        self.number = number
        self.hosted = hosted
        self.token = secrets.token_urlsafe(16)
        self.call = call
        self.reply: bytes | None = b""
        self.started = True
        self.closing = 0
        self.dialogue: NativeDialogue | None = dialogue


class NativeSessions:
    """The native sessions of one server, to be taken up again by another connection."""

    def __init__(self, host: SessionHost, settings: AppSettings) -> None:
        self.host = host
        self.nursery = host.nursery
        self.settings = settings
        self._by_id: dict[str, NativeSession] = {}

    def add(self, session: NativeSession) -> None:
        """Know a session that was just opened, until it ends."""
        self._by_id[session.hosted.session_id] = session
        session.hosted.watch_end(functools.partial(self._ended, session))

    def _ended(self, session: NativeSession) -> None:
        self._by_id.pop(session.hosted.session_id, None)
        dialogue = session.dialogue
        if dialogue is not None:
            failure = session.hosted.interruption
            if failure is not None and session.reply is None:  # its call may go on for long
                session.reply = frames.encode_error(session.number, session.call, fault_of(failure))
                dialogue.put(session.reply)
            elif session.reply is not None and not session.closing:  # nobody asked: it is told all the same
                why = session.hosted.session.lost_because or "the server ended it"
                fault = Fault(why, WSErrorCode.SESSION_ERROR.value, {"reason": "lost"})
                dialogue.put(frames.encode_error(session.number, session.call, fault))
            dialogue.drop(session)
            if session.closing:
                dialogue.put(pack([frames.CLOSED, session.number, session.closing]))

    def detach(self, session: NativeSession) -> None:
        """Keep a session whose connection broke, for as long as the host does.

        Where others wait for what it does, that is no longer than its client would need to come back.
        """
        session.dialogue = None
        timeout_s = self.settings.resume_timeout_s
        if session.hosted.others_wait:
            timeout_s = min(timeout_s, COMES_BACK_S)
        self.host.release(session.hosted.session_id, timeout_s=timeout_s, broke=True)

    def take_up(self, session_id: str, token: str, number: int, dialogue: NativeDialogue) -> NativeSession:
        """Return the session of that id, now held by this dialogue.

        Raises:
            SessionNotFoundError: It is over, or was never there, or the token or the number is another's.
        """
        session = self._by_id.get(session_id)
        known = session is not None and secrets.compare_digest(session.token.encode(), token.encode())
        if session is None or not known or session.number != number:
            raise SessionNotFoundError(f"Unknown session_id: {session_id}. It has ended, or was never here.")
        before = session.dialogue
        if before is None:
            self.host.hold(session_id)  # raises where the host has ended it meanwhile
        elif before is not dialogue:
            before.drop(session)  # its client noticed before this server did that the old connection is dead
        session.dialogue = dialogue
        self.host.metrics.session_resumed()
        return session
