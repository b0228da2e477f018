"""A client's session on the native wire: the same face as `Connection` has for the OpenEnv wire."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from openenv_trl.alarm import Alarm
from openenv_trl.client.connection import refusal
from openenv_trl.client.native_connection import NativeConnection
from openenv_trl.client.session import ClientSession, ClientState
from openenv_trl.client.turn import Turn
from openenv_trl.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    OpenEnvError,
    ProtocolError,
    SessionLostError,
    SessionNotFoundError,
)
from openenv_trl.wire import native_frames as frames
from openenv_trl.wire.faults import WSErrorCode, error_of
from openenv_trl.wire.frames import Reply, ReplyType, RequestType

_CLOSE_S = 5.0  # for the server to close the environment
_HEAD_START_S = 0.5  # of this side's deadline on the server's, which is there for a client that is gone
_FOREVER_S = 1e9  # timers take no infinity
_KIND = {"reset": frames.RESET, "step": frames.STEP, "state": frames.STATE, "mcp": frames.RPC}
_SESSION_ENDS = (WSErrorCode.CAPACITY_REACHED, WSErrorCode.FACTORY_ERROR, WSErrorCode.SESSION_ERROR)
_NO_DATA: dict[str, Any] = {}


class NativeLink:
    """One session.

    Args:
        connect: Returns the connection to open it on.
        url: The server's address, for messages.
        message_timeout_s: Seconds for a reply, where a call says nothing else.
        wait_for_slot_s: Seconds to wait for a slot, where the server has none free.
    """

    __slots__ = (
        "_alarm",
        "_call",
        "_connect",
        "_connection",
        "_frame",
        "_message_timeout_s",
        "_number",
        "_open_frame",
        "_reply",
        "_session",
        "_token",
        "_turn",
        "_url",
        "_wait_for_slot_s",
        "session_id",
    )

    def __init__(
        self,
        connect: Callable[[], Awaitable[NativeConnection]],
        url: str,
        message_timeout_s: float,
        wait_for_slot_s: float,
    ) -> None:
        self._connect = connect
        self._url = url
        self._message_timeout_s = message_timeout_s
        self._wait_for_slot_s = wait_for_slot_s
        self._session = ClientSession(url)
        self._connection: NativeConnection | None = None
        self._number = 0
        self._call = 0
        self._frame: bytes | None = None  # the open call's, to be sent again on another connection
        self._reply: asyncio.Future[list[Any]] | None = None
        self._token = ""
        self._alarm = Alarm(self._time_is_up)
        self._turn = Turn()
        self.session_id: str | None = None

    wire = "native"

    @property
    def state(self) -> ClientState:
        """Where the session stands."""
        return self._session.state

    @property
    def is_open(self) -> bool:
        """Whether a call could be sent now."""
        in_use = self._session.state in (ClientState.OPEN, ClientState.BUSY)
        return in_use and self._connection is not None and self._connection.is_open

    async def open(self) -> None:
        """Open the session; nothing where it is open. See `EnvClient.connect`."""
        if not self._turn.take():
            await self._turn.wait()
        try:
            if self._session.state is not ClientState.OPEN:
                await self._open()
        finally:
            self._turn.pass_on()

    async def call(
        self, phase: str, kind: RequestType, data: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Reply:
        """Send a request and return its reply, opening the session first where that was not done yet.

        Raises:
            OpenEnvError: The server answered with a fault, or not at all; each case has its own type.
        """
        turn = self._turn
        if not turn.take():
            await turn.wait()
        try:
            if self._session.state is ClientState.NEW:
                await self._open()
            limit_s = self._message_timeout_s if timeout_s is None else timeout_s
            body = data if data is not None or kind == "state" else _NO_DATA
            frame = self._encoded(phase, _KIND[kind], body, limit_s)
            self._session.begin(phase)
            self._call += 1
            return self._replied(phase, await self._exchange(phase, frame, limit_s))
        finally:
            turn.pass_on()

    async def close(self) -> None:
        """End the session. See `EnvClient.close`."""
        state, connection = self._session.state, self._connection
        self._session.closed()
        self._connection = None
        if connection is None:
            return
        self._fail(SessionLostError(f"The session on {self._url} was closed by its client.", phase="close"))
        try:
            if state in (ClientState.OPEN, ClientState.BUSY) and connection.is_open:
                if state is ClientState.BUSY:  # in another task, which has heard of the end by now
                    connection.put(frames.encode_request(frames.CANCEL, self._number, self._call))
                await self._closed_by(connection)
        finally:  # also where the caller was cancelled: the request is on its way
            self._end_call()
            self._alarm.stop()
            await connection.leave(self._number)

    async def _closed_by(self, connection: NativeConnection) -> None:
        reply = self._reply = connection.loop.create_future()
        self._call += 1
        self._frame = frames.encode_request(frames.CLOSE, self._number, self._call)
        connection.put(self._frame)
        self._watch(_CLOSE_S)
        with contextlib.suppress(DeadlineExceededError, SessionLostError):
            await reply

    # ------------------------------------------------------------------ what the connection calls

    def take(self, items: list[Any]) -> bool:
        """Take a frame of this session. Returns whether it answers the open call."""
        reply = self._reply
        if items[0] == frames.OPENED and self.session_id is not None:
            return True  # taken up again; the open call was sent after it
        if reply is None or reply.done() or items[2] != self._call:
            if items[0] == frames.ERROR and items[2] == self._call and self._connection is not None:
                self.lost(f"{items[3]}")
                return True
            return False
        reply.set_result(items)
        return True

    def lost(self, how: str) -> None:
        """The connection, or the session on it, is gone for good."""
        if self._session.state is ClientState.CONNECTING:
            text = f"{self._url} accepted the connection, but opened no session: {how.rstrip('.')}."
            self._fail(ConnectionFailedError(text, phase="connect"))
            return
        error = self._session.lost(how)
        self._fail(error)
        self._let_go()

    def taking_up(self) -> list[bytes]:
        """Return the frames to send on another connection: take the session up, and send the open call again."""
        again: list[bytes] = []
        if self.session_id is not None:
            body = {"session_id": self.session_id, "token": self._token}
            again.append(frames.encode_request(frames.RESUME, self._number, max(self._call, 1), body))
        if self._frame is not None:
            again.append(self._frame)
        return again

    # ------------------------------------------------------------------ calls

    async def _open(self) -> None:
        self._session.connecting()
        connection: NativeConnection | None = None
        try:
            connection = self._connection = await self._connect()
            self._number = connection.join(self)
            wait_ms = int(self._wait_for_slot_s * 1000)
            self._call += 1
            frame = frames.encode_request(
                frames.OPEN, self._number, self._call, {"wait_ms": wait_ms} if wait_ms > 0 else _NO_DATA
            )
            items = await self._exchange("connect", frame, self._message_timeout_s + self._wait_for_slot_s)
            if items[0] == frames.ERROR:
                raise error_of(frames.parse_error(items), phase="connect")
            if items[0] != frames.OPENED or not isinstance(items[3], dict):
                self._end_on_server(connection)
                raise ProtocolError(f"The server answered connect with a frame of kind {items[0]}.", phase="connect")
            opened = cast("dict[str, Any]", items[3])
            self.session_id, self._token = str(opened.get("session_id")), str(opened.get("token"))
            self._session.connected()
        except BaseException:
            self._session.connect_failed()
            self._alarm.stop()
            self._connection = None
            if connection is not None:
                with anyio.CancelScope(shield=True):
                    await connection.leave(self._number)
            raise

    async def _exchange(self, phase: str, frame: bytes, limit_s: float) -> list[Any]:
        connection = self._connection
        if connection is None:
            raise SessionLostError(f"The session on {self._url} is gone.", phase=phase)
        reply = self._reply = connection.loop.create_future()
        self._frame = frame
        connection.put(frame)
        self._watch(limit_s)
        try:
            return await reply
        except asyncio.CancelledError:
            self._end_on_server(connection)
            self._give_up(f"its {phase} was cancelled")
            raise
        except DeadlineExceededError:
            self._end_on_server(connection)
            self._give_up(f"no reply to its {phase} came within {limit_s:g} s")
            text = f"No reply to {phase} from {self._url} within {limit_s:g} s; the session is lost."
            if phase == "connect":
                text = f"{self._url} had no environment ready within {limit_s:g} s. Give it longer: message_timeout_s."
            raise DeadlineExceededError(text, phase=phase) from None
        finally:
            if self._reply is reply:  # else the session is being closed, and that is its call now
                self._end_call()

    def _replied(self, phase: str, items: list[Any]) -> Reply:
        kind = items[0]
        if kind == frames.OBSERVATION:
            self._session.replied()
            return _observation(items)
        if kind == frames.ERROR:
            fault = frames.parse_error(items)
            if fault.code in _SESSION_ENDS:
                self._give_up(fault.message)
            self._session.replied()
            error = error_of(fault, phase=phase)
            if isinstance(error, SessionNotFoundError):  # it was here, and has ended
                raise SessionLostError(f"The session on {self._url} is lost: {fault.message}", phase=phase)
            raise error
        reply_type: ReplyType = "state" if kind == frames.STATE_REPLY else "mcp"
        if kind not in (frames.STATE_REPLY, frames.RPC_REPLY) or not isinstance(items[3], dict):
            if self._connection is not None:
                self._end_on_server(self._connection)
            self._give_up(f"the server's answer to its {phase} is not of the protocol")
            raise ProtocolError(f"The server answered {phase} with a frame of kind {kind}.", phase=phase)
        self._session.replied()
        return Reply(reply_type, cast("dict[str, Any]", items[3]))

    def _end_on_server(self, connection: NativeConnection) -> None:
        # Both: the call may be running, or over already with its reply on its way. Nobody here waits for the answers.
        connection.put(frames.encode_request(frames.CANCEL, self._number, self._call))
        connection.put(frames.encode_request(frames.CLOSE, self._number, self._call + 1))

    def _give_up(self, how: str) -> None:
        """The session is over, by this side or the other; its connection goes on for the others."""
        if self._session.state is not ClientState.CONNECTING:
            self._session.lost(how)
            self._let_go()

    def _let_go(self) -> None:
        self._alarm.stop()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.forget(self._number)

    def _watch(self, limit_s: float) -> None:
        self._alarm.set(time.monotonic() + min(limit_s, _FOREVER_S))

    def _time_is_up(self) -> None:
        self._fail(DeadlineExceededError("time is up"))

    def _fail(self, error: OpenEnvError) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)

    def _end_call(self) -> None:
        self._reply = self._frame = None
        self._alarm.clear()

    def _encoded(self, phase: str, kind: int, body: Any, limit_s: float) -> bytes:
        deadline_s = limit_s + _HEAD_START_S if limit_s < _FOREVER_S else None
        try:
            frame = frames.encode_request(kind, self._number, self._call + 1, body, deadline_s)
        except TypeError as error:
            raise refusal(phase, f"{error}. Use only values that JSON can express, bytes and arrays.") from error
        connection = self._connection
        if connection is not None and len(frame) > (limit := connection.longest_frame()):
            raise refusal(
                phase,
                f"it has {len(frame)} bytes, and a message may have {limit}. Send less, or raise max_message_size_mb "
                "of the client and max_message_bytes of the server.",
            )
        return frame


def _observation(items: list[Any]) -> Reply:
    shown = items[3]
    data: dict[str, Any] = {"observation": shown, "reward": items[4], "done": items[5]}
    metadata = cast("dict[str, Any]", shown).get("metadata") if isinstance(shown, dict) else None
    if metadata:
        data["metadata"] = metadata
    return Reply("observation", data)
