"""``/mcp`` over a WebSocket, in the public package's dialect: bare JSON-RPC, one session for each connection.

What cannot be understood is answered, and the session goes on.
"""

from __future__ import annotations

import json
from typing import Any, cast

from fastapi import FastAPI
from starlette.routing import WebSocketRoute

from openenv_trl.errors import OpenEnvError
from openenv_trl.server.asgi_channel import Message, Receive, Send, carry, handshake_of
from openenv_trl.server.channel import Accepted, Handshake
from openenv_trl.server.hosted_session import HostedSession
from openenv_trl.server.tool_rpc import answer_rpc, refusal
from openenv_trl.server.websocket import OpenEnvDialogue
from openenv_trl.wire.codec import decode, encode
from openenv_trl.wire.rpc import RpcErrorCode, RpcId, rpc_error

_BINARY = "Parse error: binary messages are not part of this protocol: send each request as a text message."
_JSON_NAMES = {"list": "an array", "str": "a string", "bool": "a boolean", "NoneType": "null"}


def install_rpc_socket(app: FastAPI) -> None:
    """Add the socket to an application whose state has ``session_host``, ``settings`` and ``doors``."""
    endpoint = _RpcSocketEndpoint(app)
    app.state.doors["/mcp"] = endpoint.accept
    app.router.routes.append(WebSocketRoute("/mcp", endpoint, name="mcp"))


class _RpcSocketEndpoint:
    def __init__(self, app: FastAPI) -> None:
        self._state = app.state

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await carry(self.accept(handshake_of(scope)), receive, send)

    def accept(self, handshake: Handshake) -> Accepted:
        state = self._state
        return Accepted(RpcDialogue(state.session_host, handshake, state.settings.max_message_bytes))


class RpcDialogue(OpenEnvDialogue):
    """One connection. An agent's token opens none (`openenv_trl.server.access`)."""

    async def answer(self, session: HostedSession, message: str | bytes) -> bytes | None:
        """Return the response to a request."""
        if not isinstance(message, str):
            return _text(rpc_error(None, RpcErrorCode.PARSE_ERROR, _BINARY))
        try:
            data: Any = decode(message)
        except json.JSONDecodeError as error:
            return _text(rpc_error(None, RpcErrorCode.PARSE_ERROR, f"Parse error: {error}"))
        if not isinstance(data, dict):
            found = _JSON_NAMES.get(type(data).__name__, "a number")
            text = f"Invalid request: expected a JSON object, got {found}"
            return _text(rpc_error(None, RpcErrorCode.INVALID_REQUEST, text))
        return self._sendable(await answer_rpc(session, cast("dict[str, Any]", data)))

    def refused(self, error: OpenEnvError) -> bytes:
        """Return what a peer is told that has no session."""
        return _text(refusal(None, error))

    def _sendable(self, response: dict[str, Any]) -> bytes:
        try:
            text = _text(response)
        except TypeError as error:
            why = f"The call was made, but its result cannot be sent as JSON: {error}"
        else:
            if len(text) <= self._max_message_bytes:
                return text
            most = self._max_message_bytes
            why = f"The call was made, but its result has {len(text)} bytes, and a message has {most} at most."
        return _text(rpc_error(cast("RpcId", response.get("id")), RpcErrorCode.INTERNAL_ERROR, why))


def _text(response: dict[str, Any]) -> bytes:
    """Return a response as the public package writes it here, with spaces, which its transcripts show."""
    try:
        return json.dumps(response, allow_nan=False).encode()
    except (TypeError, ValueError):  # what only the wire's own codec can express
        return json.dumps(decode(encode(response))).encode()
