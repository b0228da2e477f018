"""Puts the debug page into an application: its files, its routes, its socket.

The files are read once, sent with a strict content security policy, and load nothing from elsewhere: the page works
where there is no network. They tell nothing of the environment, so they need no token; all that does goes over routes
that need it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.routing import Route, WebSocketRoute

from openenv_trl.server.access import PAGE_SOCKET
from openenv_trl.server.asgi_channel import Message, Receive, Send, carry, handshake_of
from openenv_trl.server.channel import Accepted, Handshake
from openenv_trl.server.web.page import Page
from openenv_trl.server.web.page_routes import Visitors, install_page_routes
from openenv_trl.server.web.page_socket import SUBPROTOCOL, PageDialogue, Watcher
from openenv_trl.server.workers.affinity import cookie_of

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
# No script but the page's own, and nothing from any other server. The frame in which an environment's HTML is shown
# inherits all this: its styles may stand where they are used, and its pictures are data.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {framed_by}"
)
_SPACES = "https://huggingface.co"  # shows a Space in a frame of its own page


def install_web_page(app: FastAPI, factory: Callable[[], Any], title: str | None) -> frozenset[str]:
    """Give an application the debug page.

    Args:
        app: The application; see `Page` for what its state has.
        factory: Builds the environments.
        title: What stands at the page's top; the environment's name if None.

    Returns:
        The paths of the page's files, which need no token.
    """
    page = Page(app, factory, title)
    visitors = Visitors(page)

    def accept(handshake: Handshake) -> Accepted:
        if SUBPROTOCOL in handshake.subprotocols:
            return Accepted(PageDialogue(page), SUBPROTOCOL)
        visitor = visitors.find(cookie_of(handshake.headers))
        return Accepted(Watcher(visitor))

    async def to_page(request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/web/", status_code=307)

    files = {f"/web/{path.name}": path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}
    files["/web/"] = files.pop("/web/index.html")
    install_page_routes(app, page, visitors)
    for path in ("/", "/web"):
        app.router.routes.append(Route(path, to_page, methods=["GET"]))
    for path, file in files.items():
        app.router.routes.append(Route(path, _endpoint(file), methods=["GET"]))
    app.state.doors[PAGE_SOCKET] = accept
    app.router.routes.append(WebSocketRoute(PAGE_SOCKET, _SocketEndpoint(accept), name="page"))
    return frozenset({"/", "/web", *files})


class _SocketEndpoint:
    def __init__(self, accept: Callable[[Handshake], Accepted]) -> None:
        self._accept = accept

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await carry(self._accept(handshake_of(scope)), receive, send)


def _endpoint(file: Path) -> Callable[[Request], Any]:
    content = file.read_bytes()
    headers = {
        "content-security-policy": _POLICY.format(framed_by=_SPACES if os.environ.get("SPACE_ID") else "'none'"),
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(content).hexdigest()[:20]}"',
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=_TYPES[file.suffix])

    return answer
