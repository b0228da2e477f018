"""The native wire on the server: many sessions on one connection, each with one call at a time.

Promises: a call is carried out at most once, however often it is sent; a reply reaches the client on whatever
connection the session has then; calls of different sessions do not wait for each other; a client that reads slowly
stops being read.

Requests are worked off in order by as few tasks as the environments allow: a hook that does not wait costs no change of
tasks, and one that waits is joined by another task for the requests behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, cast

import anyio

from openenv_trl.errors import OpenEnvError, ProtocolError
from openenv_trl.server.channel import Channel
from openenv_trl.server.dialogue import CARRIED_OUT, too_long, unsendable
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.native_sessions import NativeSession, NativeSessions
from openenv_trl.server.tool_rpc import answer_rpc
from openenv_trl.types import Observation
from openenv_trl.wire import native_frames as frames
from openenv_trl.wire.faults import Fault, WSErrorCode, fault_of
from openenv_trl.wire.model_values import dump_model
from openenv_trl.wire.native_codec import array_header, pack
from openenv_trl.wire.native_frames import NativeRequest
from openenv_trl.wire.observations import sent_reward

logger = logging.getLogger("openenv_trl.server")

_LONGEST_WAIT_S = 3600.0  # for a slot, whatever the client asks
_MOVED_OUT = {"reward", "done"}  # of an observation, into the frame
_IDLE_WORKERS = 64  # kept for the next batch; a task costs more to make than to keep


class NativeDialogue:
    """One connection. See `Consumer`."""

    def __init__(self, sessions: NativeSessions) -> None:
        self._all = sessions
        self._host = sessions.host
        self._max_bytes = sessions.settings.max_message_bytes
        self._peer_bytes = 0  # until its greeting
        self._sessions: dict[int, NativeSession] = {}
        self._opening: dict[int, anyio.CancelScope] = {}
        self._queue: deque[tuple[NativeSession | None, NativeRequest]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._recheck_comes = False
        self._out: list[bytes] = []
        self._flush_comes = False
        self._channel: Channel | None = None
        self._ended = anyio.Event()
        self._loop = asyncio.get_running_loop()

    def opened(self, channel: Channel) -> None:
        """See `Consumer`."""
        self._channel = channel
        self.put(
            frames.encode_greeting(
                self._max_bytes,
                resume_s=self._all.settings.resume_timeout_s,
                worker=self._host.worker,
                workers=self._host.workers,
                software="openenv-trl",
            )
        )

    async def run(self) -> None:
        """See `Consumer`."""
        await self._ended.wait()

    def received(self, message: str | bytes) -> None:
        """See `Consumer`."""
        if isinstance(message, str):
            self._fail("a text message: the native wire's are binary", 1003)
            return
        try:
            for frame in frames.parse_message(message):
                if self._peer_bytes:
                    self._take(frames.parse_request(frame))
                else:
                    greeting = frames.parse_greeting(frame)
                    if greeting is None:
                        raise ProtocolError("the first frame of a connection is a greeting")
                    self._peer_bytes = greeting.max_message_bytes
        except ProtocolError as error:
            self._fail(str(error), 1002)
        self._call_a_worker()

    def writing_paused(self) -> None:
        """See `Consumer`."""
        if self._channel is not None:
            self._channel.pause_reading()

    def writing_resumed(self) -> None:
        """See `Consumer`."""
        if self._channel is not None:
            self._channel.resume_reading()

    def closed(self, code: int) -> None:
        """See `Consumer`."""
        self._channel = None
        for scope in self._opening.values():
            scope.cancel()
        sessions, self._sessions = self._sessions, {}
        broke = code == 1006 and self._all.settings.resume_timeout_s > 0
        for session in sessions.values():
            if broke:
                self._all.detach(session)
            else:
                session.dialogue = None
        if sessions and not broke:
            self._all.nursery.start(self._close_all, list(sessions.values()))
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        self._ended.set()

    def drop(self, session: NativeSession) -> None:
        """Another connection has taken the session up."""
        if self._sessions.get(session.number) is session:
            del self._sessions[session.number]

    def _take(self, request: NativeRequest) -> None:
        kind, number = request.kind, request.session
        session = self._sessions.get(number)
        if kind == frames.OPEN:
            if session is not None or number in self._opening:
                self._refuse(request, f"session number {number} is in use on this connection")
                return
            self._opening[number] = anyio.CancelScope()
            self._queue.append((None, request))
        elif kind == frames.RESUME:
            self._resume(request)
        elif kind == frames.CANCEL:
            self._cancel(session, request)
        elif session is None:
            self._refuse(request, f"Unknown session: there is none of number {number} on this connection")
        elif kind == frames.CLOSE:
            self._queue.append((session, request))
        elif request.call == session.call:
            if (
                session.reply
            ):  # sent again by a client that lost its connection; while the call runs, its reply will come
                self.put(session.reply)
        elif request.call < session.call:
            self._refuse(request, f"call {request.call} is over: this session is at call {session.call}")
        elif session.reply is None:
            self._refuse(request, f"call {session.call} still runs: a session does one thing at a time")
        else:
            session.call, session.reply, session.started = request.call, None, False
            self._queue.append((session, request))

    # ------------------------------------------------------------------ workers

    def _call_a_worker(self) -> None:
        if not self._queue:
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        self._all.nursery.start(self._work)

    def _recheck(self) -> None:
        self._recheck_comes = False
        self._call_a_worker()  # the one that was at work has begun to wait

    async def _work(self) -> None:
        queue = self._queue
        while True:
            while queue:
                session, request = queue.popleft()
                if queue and not self._recheck_comes:
                    self._recheck_comes = True
                    self._loop.call_soon(self._recheck)
                if session is None:
                    await self._open(request)
                elif request.kind == frames.CLOSE:
                    session.closing = request.call
                    await session.hosted.close()  # once its running call is over; its end is the answer
                elif session.reply is None and request.call == session.call:  # else it was cancelled in the queue
                    session.started = True
                    reply = await self._answer(session, request)
                    if session.reply is None:  # else the session ended under the call, and the client was told
                        session.reply = reply
                        if session.dialogue is not None:
                            session.dialogue.put(reply)
                        elif session.hosted.others_wait:
                            self._all.detach(session)  # its reset has just said so
            if self._channel is None or len(self._idle) >= _IDLE_WORKERS:
                return
            idle = self._loop.create_future()
            self._idle.append(idle)
            await idle

    async def _answer(self, session: NativeSession, request: NativeRequest) -> bytes:
        kind, hosted = request.kind, session.hosted
        try:
            if kind == frames.STEP:
                return self._observation(
                    hosted, request, await hosted.step(request.body, deadline_s=request.deadline_s)
                )
            if kind == frames.RESET:
                return self._observation(
                    hosted, request, await hosted.reset(request.body, deadline_s=request.deadline_s)
                )
            if kind == frames.STATE:
                try:
                    state = await hosted.state(deadline_s=request.deadline_s)
                except TypeError as error:
                    fault = unsendable("state was read", error, hosted.about("state"))
                    return frames.encode_error(request.session, request.call, fault)
                return self._packed(hosted, request, [frames.STATE_REPLY, request.session, request.call, state])
            response = await answer_rpc(hosted, request.body)
            return self._packed(hosted, request, [frames.RPC_REPLY, request.session, request.call, response])
        except OpenEnvError as error:
            # Its text is the environment author's, of any length; the client drops all sessions for a frame too long.
            return self._fitting(hosted, request, frames.encode_error(request.session, request.call, fault_of(error)))
        except Exception:  # boundary: what is not foreseen is a fault of the server, and is said so
            text = "A call of session %s failed by a fault of the server"
            logger.exception(text, hosted.session_id, extra=hosted.about())
            fault = Fault("The server failed; its log tells why.", WSErrorCode.EXECUTION_ERROR.value)
            return frames.encode_error(request.session, request.call, fault)

    def _observation(self, hosted: HostedSession, request: NativeRequest, observation: Observation) -> bytes:
        try:
            shown = dump_model(observation, exclude=_MOVED_OUT, at="observation")
            reward = sent_reward(observation)
            frame = [frames.OBSERVATION, request.session, request.call, shown, reward, observation.done]
            return self._fitting(hosted, request, pack(frame, "observation"))
        except Exception as error:  # boundary: pydantic serializers are the environment author's code
            call = "step" if request.kind == frames.STEP else "reset"
            fault = unsendable(CARRIED_OUT[call], error, hosted.about(call))
            return frames.encode_error(request.session, request.call, fault)

    def _packed(self, hosted: HostedSession, request: NativeRequest, frame: list[Any]) -> bytes:
        try:
            return self._fitting(hosted, request, pack(frame, "state" if request.kind == frames.STATE else "result"))
        except TypeError as error:
            fault = unsendable("call was carried out", error, hosted.about())
            return frames.encode_error(request.session, request.call, fault)

    def _fitting(self, hosted: HostedSession, request: NativeRequest, frame: bytes) -> bytes:
        limit = min(self._peer_bytes, self._max_bytes)
        if len(frame) + frames.HEADER_BYTES <= limit:
            return frame
        whose = "the server's max_message_bytes" if limit == self._max_bytes else "the client's max_message_size_mb"
        return frames.encode_error(request.session, request.call, too_long(len(frame), limit, hosted.about(), whose))

    # ------------------------------------------------------------------ sessions

    async def _open(self, request: NativeRequest) -> None:
        scope = self._opening[request.session]
        hosted: HostedSession | None = None
        try:
            with scope:
                hosted = await self._host.open(wait_s=_wait_s(request.body), transport="native")
        except OpenEnvError as error:
            self.put(frames.encode_error(request.session, request.call, fault_of(error)))
        finally:
            self._opening.pop(request.session, None)
        if hosted is not None and (scope.cancel_called or self._channel is None):
            await hosted.close()  # it was built before it could be stopped
            hosted = None
        if hosted is None:
            if scope.cancel_called:
                self.put(_cancelled(request))
            return
        session = NativeSession(request.session, hosted, self, request.call)
        self._sessions[request.session] = session
        self._all.add(session)
        session.reply = pack(
            [
                frames.OPENED,
                request.session,
                request.call,
                {"session_id": hosted.session_id, "token": session.token},
            ]
        )
        self.put(session.reply)

    async def _close_all(self, sessions: list[NativeSession]) -> None:
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(session.hosted.close)

    def _resume(self, request: NativeRequest) -> None:
        number, body = request.session, cast("dict[str, Any]", request.body)
        mine = self._sessions.get(number)
        if number in self._opening or (mine is not None and mine.hosted.session_id != body.get("session_id")):
            self._refuse(request, f"session number {number} is in use on this connection")
            return
        session_id, token = str(body.get("session_id", "")), str(body.get("token", ""))
        try:
            session = self._all.take_up(session_id, token, request.session, self)
        except OpenEnvError as error:
            self.put(
                frames.encode_error(request.session, request.call, Fault(str(error), WSErrorCode.SESSION_ERROR.value))
            )
            return
        self._sessions[request.session] = session
        self.put(
            pack([frames.OPENED, request.session, request.call, {"session_id": session_id, "token": session.token}])
        )

    def _cancel(self, session: NativeSession | None, request: NativeRequest) -> None:
        opening = self._opening.get(request.session)
        if opening is not None:
            opening.cancel()
        elif session is not None and session.call == request.call and session.reply is None:
            if session.started:
                session.hosted.cancel_call()  # its reply says so
            else:
                session.reply = _cancelled(request)
                self.put(session.reply)

    # ------------------------------------------------------------------ the way out

    def put(self, frame: bytes) -> None:
        """Send a frame, together with others of the same moment."""
        if len(self._sessions) == 1 and self._channel is not None and not self._out:
            self._channel.send(array_header(1) + frame, text=False)  # there are no others
            return
        self._out.append(frame)
        if len(self._out) >= frames.JOINED_FRAMES:
            self._send_out()  # the client has something to do while the rest is worked off
        elif not self._flush_comes:
            self._flush_comes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_comes = False
        self._send_out()

    def _send_out(self) -> None:
        out, self._out = self._out, []
        if self._channel is not None:
            for message in frames.join(out):
                self._channel.send(message, text=False)

    def _refuse(self, request: NativeRequest, why: str) -> None:
        fault = Fault(f"{why}.", WSErrorCode.SESSION_ERROR.value)
        self.put(frames.encode_error(request.session, request.call, fault))

    def _fail(self, why: str, code: int) -> None:
        if self._channel is not None:
            self._flush()
            self._channel.close(code, why)


def _cancelled(request: NativeRequest) -> bytes:
    fault = Fault("The call was cancelled by its client.", WSErrorCode.SESSION_ERROR.value, {"reason": "cancelled"})
    return frames.encode_error(request.session, request.call, fault)


def _wait_s(body: dict[str, Any]) -> float:
    wait_ms = body.get("wait_ms", 0)
    if type(wait_ms) not in (int, float) or not wait_ms > 0:
        return 0.0
    return min(wait_ms / 1000, _LONGEST_WAIT_S)
