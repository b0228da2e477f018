"""``/mcp`` as the Model Context Protocol proper: streamable HTTP, one environment for each of the protocol's sessions.

``initialize`` opens a session of this server (within the limit, waiting its turn) and begins an episode, since an agent
cannot: it lists and calls tools, and has no other power over an environment. With ``?session_id=`` it is attached to a
session that a trainer opened, shares its environment, and leaves it running when it goes.

The session ends with ``DELETE``, or when no request came for the detached timeout. Its environment's end ends it too:
the next request is answered with 404, upon which a client begins anew.

Source: Model Context Protocol, revision 2025-11-25, "Transports: Streamable HTTP".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

import anyio

from openenv_trl.errors import EnvironmentFactoryError, OpenEnvError, SessionCapacityError
from openenv_trl.server.access import Role
from openenv_trl.server.access_middleware import Message, Receive, Send, headers_of, query_of, role_of
from openenv_trl.server.host import SessionHost
from openenv_trl.server.mcp_opening import Opening, opening_of
from openenv_trl.server.mcp_session import AgentSession
from openenv_trl.server.settings import AppSettings
from openenv_trl.wire.codec import decode, encode
from openenv_trl.wire.rpc import RpcErrorCode, RpcId, rpc_error

logger = logging.getLogger("openenv_trl.server")

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"

NO_PACKAGE_TEXT = (
    "This server does not speak the Model Context Protocol, because the package 'mcp' is not installed where it runs. "
    'Install it there: pip install "openenv-trl[mcp]".'
)

_SESSION_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
_UNSUPPORTED_VERSION = -32022  # the protocol's own code for it
_PROGRESS_INTERVAL_S = 2.0


class McpProtocol:
    """The ASGI application for those requests to ``/mcp`` that speak the protocol proper.

    Args:
        host: Where sessions are opened.
        settings: The limits.
        progress_interval_s: How often a client that asked for progress hears of a call that says nothing itself.
    """

    def __init__(
        self, host: SessionHost, settings: AppSettings, progress_interval_s: float = _PROGRESS_INTERVAL_S
    ) -> None:
        self._host = host
        self._settings = settings
        self.progress_interval_s = progress_interval_s
        self._sessions: dict[str, AgentSession] = {}

    @property
    def sessions(self) -> int:
        """How many agents are connected."""
        return len(self._sessions)

    @staticmethod
    def speaks(headers: Mapping[str, str]) -> bool:
        """Whether a request, by its headers, is the protocol's own and not the public package's dialect.

        Args:
            headers: The headers, with names in lower case.
        """
        return (
            SESSION_HEADER in headers
            or VERSION_HEADER in headers
            or "text/event-stream" in headers.get("accept", "").lower()
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        headers, method = headers_of(scope), scope["method"]
        session_id = headers.get(SESSION_HEADER)
        if session_id is not None:
            await self._pass_on(session_id, scope, receive, send)
        elif method != "POST":
            error = rpc_error(None, RpcErrorCode.SERVER_ERROR, f"{method} needs the header Mcp-Session-Id.")
            await _answer(send, 405 if method != "DELETE" else 400, error, allow="POST")
        else:
            await self._begin(scope, headers, receive, send)

    async def _pass_on(self, session_id: str, scope: Message, receive: Receive, send: Send) -> None:
        session = self._sessions.get(session_id)
        # An agent never gets at a session of the trainer's, and cannot tell it from one that does not exist.
        if session is None or (role_of(scope) is Role.AGENT and session.role is Role.TRAINER):
            await _answer(send, 404, _not_found())
        elif scope["method"] == "DELETE":
            await session.end()
            await _answer(send, 200, None)
        else:
            body = await _body(receive, self._settings.max_message_bytes) if scope["method"] == "POST" else b""
            if body is None:
                await _answer(send, 413, _too_long(self._settings.max_message_bytes))
            elif await session.handle(scope, _again(body, receive), send) is None:
                await _answer(send, 404, _not_found())

    async def _begin(self, scope: Message, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        body = await _body(receive, self._settings.max_message_bytes)
        if body is None:
            await _answer(send, 413, _too_long(self._settings.max_message_bytes))
            return
        request_id, method = _request(body)
        version = headers.get(VERSION_HEADER)
        if method != "initialize" and version is not None and version not in _SESSION_VERSIONS:
            # Later revisions have no sessions. A client that reads this falls back to one that has.
            data = {"supported": list(_SESSION_VERSIONS), "requested": version}
            error = rpc_error(request_id, RpcErrorCode.INVALID_REQUEST, "Unsupported protocol version", data)
            error["error"]["code"] = _UNSUPPORTED_VERSION
            await _answer(send, 400, error)
        elif method != "initialize":
            text = "A session begins with initialize; every later request needs the header Mcp-Session-Id."
            await _answer(send, 400, rpc_error(request_id, RpcErrorCode.INVALID_REQUEST, text))
        else:
            await self._open(scope, headers, request_id, body, receive, send)

    async def _open(
        self,
        scope: Message,
        headers: Mapping[str, str],
        request_id: RpcId,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        session: AgentSession | OpenEnvError | None = None
        async with anyio.create_task_group() as tasks:
            # Nobody may be left to take the slot that is waited for.
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            try:
                session = await self._opened(opening_of(query_of(scope)), role_of(scope), headers)
            except ImportError:
                await _answer(send, 200, rpc_error(request_id, RpcErrorCode.SERVER_ERROR, NO_PACKAGE_TEXT))
            except OpenEnvError as error:
                session = error
            tasks.cancel_scope.cancel()
        if isinstance(session, OpenEnvError):
            await _answer(send, 200, _refusal(request_id, session))
        elif session is not None:
            self._sessions[session.session_id] = session
            self._host.nursery.start(self._run, session)
            status = await session.handle(scope, _again(body, receive), send)
            if status is None:
                await _answer(send, 404, _not_found())
            elif status >= 400:
                await session.end()

    async def _opened(self, opening: Opening, role: Role, headers: Mapping[str, str]) -> AgentSession:
        return await AgentSession.open(
            self._host,
            opening,
            role,
            as_json="text/event-stream" not in headers.get("accept", "").lower(),
            progress_interval_s=self.progress_interval_s,
        )

    async def _run(self, session: AgentSession) -> None:
        try:
            await session.run()
        finally:
            self._sessions.pop(session.session_id, None)


def _request(body: bytes) -> tuple[RpcId, str]:
    """Return the id and the method of the message in a body; None and "" where it is none."""
    try:
        message: Any = decode(body)
    except ValueError:
        return None, ""
    if not isinstance(message, dict):
        return None, ""
    fields = cast("dict[str, Any]", message)
    request_id, method = fields.get("id"), fields.get("method")
    known = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    return known, method if isinstance(method, str) else ""


def _refusal(request_id: RpcId, error: OpenEnvError) -> dict[str, Any]:
    data: dict[str, Any] | None = None
    if isinstance(error, SessionCapacityError):
        data = {"active_sessions": error.active_sessions, "max_sessions": error.max_sessions}
    elif isinstance(error, EnvironmentFactoryError):
        data = {"factory_name": error.factory_name}
    return rpc_error(request_id, RpcErrorCode.SERVER_ERROR, str(error), data)


def _not_found() -> dict[str, Any]:
    return rpc_error(None, RpcErrorCode.SERVER_ERROR, "Session not found. Begin anew with initialize.")


def _too_long(limit: int) -> dict[str, Any]:
    return rpc_error(None, RpcErrorCode.INVALID_REQUEST, f"The message is longer than {limit} bytes.")


async def _body(receive: Receive, limit: int) -> bytes | None:
    """Return a request's body; None where it is longer than the limit."""
    parts, length = list[bytes](), 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > limit:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body which was read already, and then what else comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _answer(send: Send, status: int, body: dict[str, Any] | None, *, allow: str = "") -> None:
    content = b"" if body is None else encode(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if allow:
        headers.append((b"allow", allow.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
