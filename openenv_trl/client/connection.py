"""A client's connection: the async shell that does what the pure `ClientSession` decides.

Promises: one call at a time, each with its own reply; a call whose reply can no longer be told from the next one's (it
timed out, or was cancelled) ends the session; a session that has ended never takes a call again.
"""

from __future__ import annotations

import contextlib
from typing import Any

import anyio

from openenv_trl.client.address import ServerAddress
from openenv_trl.client.session import ClientSession, ClientState
from openenv_trl.client.transport import Socket, SocketClosed, SocketSettings, open_socket
from openenv_trl.client.turn import Turn
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    ConnectionFailedError,
    DeadlineExceededError,
    OpenEnvError,
    ProtocolError,
)
from openenv_trl.wire.faults import Fault, WSErrorCode, error_of
from openenv_trl.wire.frames import Reply, RequestType, encode_request, parse_reply
from openenv_trl.wire.rpc import rpc_request

_CLOSE_S = 5.0  # for the server to close the environment; then the socket is closed all the same
_SESSION_ENDS = (WSErrorCode.CAPACITY_REACHED, WSErrorCode.FACTORY_ERROR, WSErrorCode.SESSION_ERROR)
_REPLY_TO = {"reset": "observation", "step": "observation", "state": "state", "mcp": "mcp"}


class Connection:
    """One session's way to its server.

    Args:
        address: The server.
        settings: How the socket is opened and kept.
        message_timeout_s: Seconds for a reply, where a call says nothing else.
        socket: One that is open already, for the first try.
        wait_for_slot_s: Seconds that the server was asked to wait for a slot, on top of those for the environment.
    """

    def __init__(
        self,
        address: ServerAddress,
        settings: SocketSettings,
        message_timeout_s: float,
        socket: Socket | None = None,
        wait_for_slot_s: float = 0.0,
    ) -> None:
        self._address = address
        self._settings = settings
        self._message_timeout_s = message_timeout_s
        self._opening_timeout_s = message_timeout_s + wait_for_slot_s
        self._session = ClientSession(address.base_url)
        self._socket: Socket | None = None
        self._unused = socket
        self._turn = Turn()

    wire = "openenv"
    session_id = None  # which the OpenEnv wire does not tell

    @property
    def state(self) -> ClientState:
        """Where the session stands."""
        return self._session.state

    @property
    def is_open(self) -> bool:
        """Whether a call could be sent now; False also where the socket ended while nobody used the session."""
        in_use = self._session.state in (ClientState.OPEN, ClientState.BUSY)
        return in_use and self._socket is not None and self._socket.is_open

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
        message = _encode(phase, kind, data, self._settings.max_message_bytes)
        limit_s = self._message_timeout_s if timeout_s is None else timeout_s
        if not self._turn.take():
            await self._turn.wait()
        try:
            if self._session.state is ClientState.NEW:
                await self._open()
            self._session.begin(phase)
            socket = self._socket
            assert socket is not None, "an open session has a socket"
            deadline = socket.abort_after(limit_s)
            try:
                answer = await _exchange(socket, message)
            except SocketClosed as closed:
                if not deadline.passed:
                    raise self._session.lost(str(closed)) from closed
                self._session.lost(f"no reply to its {phase} came within {limit_s:g} s")
                text = f"No reply to {phase} from {self._address.base_url} within {limit_s:g} s; the session is lost."
                raise DeadlineExceededError(text, phase=phase) from None
            except BaseException:
                self._session.lost(f"its {phase} was cancelled")
                socket.abort()
                raise
            finally:
                deadline.lift()
            return self._take(answer, phase, kind, socket)
        finally:
            self._turn.pass_on()

    async def close(self) -> None:
        """End the session. See `EnvClient.close`."""
        state, socket = self._session.state, self._socket
        self._session.closed()
        self._socket = None
        if socket is None:
            return
        if state is not ClientState.OPEN:
            socket.abort()
            return
        with anyio.move_on_after(_CLOSE_S, shield=True), contextlib.suppress(SocketClosed):
            await socket.send(encode_request("close"))
            while True:
                await socket.receive()
        with anyio.CancelScope(shield=True):
            await socket.close()

    async def _open(self) -> None:
        self._session.connecting()
        socket = None
        try:
            socket, self._unused = self._unused, None
            if socket is None:
                socket = await open_socket(self._address, self._settings)
            await self._await_session(socket)
            self._session.connected()
        except BaseException:
            self._session.connect_failed()
            if socket is not None:
                socket.abort()
            raise
        self._socket = socket

    async def _await_session(self, socket: Socket) -> None:
        base_url, limit_s = self._address.base_url, self._opening_timeout_s
        deadline = socket.abort_after(limit_s)
        try:
            answer = await _exchange(socket, encode_request("mcp", rpc_request("connect", "ping")))
        except SocketClosed as closed:
            if not deadline.passed:
                text = f"{base_url} accepted the connection, but opened no session: {str(closed).rstrip('.')}."
                raise ConnectionFailedError(text, phase="connect") from closed
            raise DeadlineExceededError(
                f"{base_url} accepted the connection, but had no environment ready within {limit_s:g} s. Give it "
                "longer with message_timeout_s.",
                phase="connect",
            ) from None
        finally:
            deadline.lift()
        reply = parse_reply(answer)
        if isinstance(reply, Fault) and reply.code in _SESSION_ENDS:
            raise error_of(reply, phase="connect")

    def _take(self, answer: str | bytes, phase: str, kind: RequestType, socket: Socket) -> Reply:
        try:
            reply = parse_reply(answer)
            if isinstance(reply, Reply) and reply.type != _REPLY_TO[kind]:
                raise ProtocolError(f"The server answered {phase} with a message of type '{reply.type}'.", phase=phase)
        except ProtocolError:
            self._session.lost(f"the server's answer to its {phase} is not of the protocol")
            socket.abort()
            raise
        if isinstance(reply, Reply):
            self._session.replied()
            return reply
        if reply.code in _SESSION_ENDS:
            self._session.lost(reply.message)
        self._session.replied()
        raise error_of(reply, phase=phase)


async def _exchange(socket: Socket, message: bytes) -> str | bytes:
    try:
        await socket.send(message)
    except SocketClosed:
        # The server's last word, such as why it refused the session, may still wait to be read.
        return await socket.receive()
    return await socket.receive()


def _encode(phase: str, kind: RequestType, data: dict[str, Any] | None, limit: int) -> bytes:
    try:
        message = encode_request(kind, data)
    except TypeError as error:
        raise refusal(phase, f"{error}. Use only values that JSON can express.") from error
    if len(message) > limit:
        text = f"it has {len(message)} bytes, and a message may have {limit}. Send less, or raise max_message_size_mb."
        raise refusal(phase, text)
    return message


def refusal(phase: str, reason: str) -> OpenEnvError:
    """Return the error of a call that was not sent: the action's fault in a step, the arguments' elsewhere."""
    text = f"Cannot send the {phase}: {reason}"
    return ActionValidationError(text) if phase == "step" else ConfigurationError(text)
