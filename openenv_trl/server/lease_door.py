"""Where a server's lease is renewed: ``POST /lease`` before everything else that an application answers."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from openenv_trl.server.access_middleware import Application, Message, Receive, Send
from openenv_trl.server.lease import Lease, take_lease
from openenv_trl.wire.codec import encode
from openenv_trl.wire.lease import LEASE_HEADER, LEASE_PATH, LEASE_SECRET_HEADER

_WRONG_TOKEN = {"detail": f"The headers {LEASE_HEADER} and {LEASE_SECRET_HEADER} do not have what renews this server."}
_NOT_POST = {"detail": f"{LEASE_PATH} takes POST only."}


class LeaseDoor:
    """Takes renewals, and notices when the application behind it begins to serve.

    Args:
        app: The application.
        lease: What is renewed.
    """

    knows_fast_sockets = True  # a socket renews nothing

    def __init__(self, app: Application, lease: Lease) -> None:
        self.app = app
        self._lease = lease

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Take the renewal, or let the application answer."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, self._noticing_start(send))
            return
        self._lease.begin()
        if scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path") or "") == LEASE_PATH:
            await self._answer(scope, send)
            return
        await self.app(scope, receive, send)

    def _noticing_start(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._lease.begin()
            elif message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                self._lease.leave()
            await send(message)

        return sending

    async def _answer(self, scope: Message, send: Send) -> None:
        if scope["method"] != "POST":
            await _send(send, 405, _NOT_POST)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        token = headers.get(LEASE_HEADER.encode(), "")
        if not self._lease.renew(token, headers.get(LEASE_SECRET_HEADER.encode())):
            await _send(send, 403, _WRONG_TOKEN)
            return
        await _send(send, 204, None)


def install_lease(app: FastAPI) -> None:
    """Put the door before an application of `create_app`, where this process has a lease.

    Raises:
        ConfigurationError: The variables of the lease cannot be used.
    """
    lease = take_lease()
    app.state.has_lease_door = lease is not None
    if lease is not None:
        app.add_middleware(LeaseDoor, lease=lease)


def with_lease_door(app: Application) -> Application:
    """Return an application with the door before it, where this process has a lease and the application no door.

    One that only holds an application of `create_app`, at a path of its own, has none at the path that is asked.
    """
    lease = take_lease()
    if lease is None or getattr(getattr(app, "state", None), "has_lease_door", False):
        return app
    return LeaseDoor(app, lease)


async def _send(send: Send, status: int, content: dict[str, Any] | None) -> None:
    body = b"" if content is None else encode(content)
    headers = [] if content is None else [(b"content-type", b"application/json"), (b"allow", b"POST")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
