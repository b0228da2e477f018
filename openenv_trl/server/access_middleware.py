"""The door of the ASGI application: `AccessControl` asked before anything else sees a request or a socket.

A refused WebSocket gets an HTTP answer in place of the handshake, so nothing of it ever reaches a session.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from openenv_trl.server.access import AccessControl, Refusal, Role
from openenv_trl.server.settings import AppSettings
from openenv_trl.wire.codec import encode

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

logger = logging.getLogger("openenv_trl.server")

ROLE_KEY = "openenv_trl.role"
"""Where in the ASGI scope the `Role` of a request stands."""


class AccessMiddleware:
    """Lets through what `AccessControl` allows.

    Args:
        app: What is behind the door.
        access: Who may pass.
    """

    knows_fast_sockets = True  # sockets that do not come through ASGI ask ``app.state.access`` themselves

    def __init__(self, app: Application, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer the request, or let the application answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        path = scope["path"].removeprefix(scope.get("root_path") or "")
        refusal = self._access.check(path, headers, query_of(scope))
        if refusal is None:
            scope[ROLE_KEY] = self._access.role(headers, path)
            await self._app(scope, receive, send)
            return
        client = scope.get("client") or ("unknown",)
        logger.info("Refused %s from %s with status %d: %s", scope["path"], client[0], refusal.status, refusal.message)
        await _refuse(scope, send, refusal)


def install_access(app: FastAPI, settings: AppSettings, open_paths: Iterable[str] = ()) -> AccessControl:
    """Put the door before an application, and the decision about it on ``app.state.access``.

    Args:
        app: The application.
        settings: The tokens and the allowed origins.
        open_paths: What needs no token beside the probes.

    Raises:
        ConfigurationError: The tokens cannot be used.
    """
    # The name under which Hugging Face serves a Space: its own pages have it as their origin.
    access = AccessControl(settings, own_hosts=(os.environ.get("SPACE_HOST", ""),), open_paths=open_paths)
    app.state.access = access
    app.add_middleware(AccessMiddleware, access=access)
    if settings.allowed_origins:
        # Added last, so it stands before the door: a browser asks what it may send without showing its token.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id"],
        )
    return access


def role_of(scope: Mapping[str, Any]) -> Role:
    """Return on whose behalf a request comes, as the door saw it; the trainer's where there is no door."""
    role = scope.get(ROLE_KEY)
    return role if isinstance(role, Role) else Role.TRAINER


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return a scope's headers, with names in lower case; the last of a repeated one."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def query_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of a scope's query; the last of a repeated one."""
    text = scope.get("query_string") or b""
    return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}


def refusal_headers(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    """Return the headers of the answer to a refused request."""
    headers = [(b"content-type", b"application/json")]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="openenv"'))
    return headers


async def _refuse(scope: Message, send: Send, refusal: Refusal) -> None:
    prefix = ""
    if scope["type"] == "websocket":
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.message[:120]})
            return
        prefix = "websocket."
    body = encode({"detail": refusal.message})
    headers = [*refusal_headers(refusal), (b"content-length", str(len(body)).encode())]
    await send({"type": f"{prefix}http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body})
