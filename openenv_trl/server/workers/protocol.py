"""uvicorn's HTTP protocol in a worker: a WebSocket's handshake goes to the worker that it belongs to.

It is read here as far as its head; then the connection itself is handed over, so nothing of this worker stays between
the client and the session.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from uvicorn.config import Config
from uvicorn.server import ServerState

from openenv_trl.server.guarded_http import GuardedHttpProtocol
from openenv_trl.server.workers.affinity import Affinity
from openenv_trl.server.workers.handover import FORWARDED, HandedOver


class WorkerHttpProtocol(GuardedHttpProtocol):
    """One connection. `affinity` comes first, so that a partial object can stand for the class."""

    def __init__(
        self,
        affinity: Affinity,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._affinity = affinity

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A client is there, or a sibling that forwards its requests."""
        super().connection_made(transport)
        handed = self.app_state.get(FORWARDED)
        if isinstance(handed, HandedOver) and handed.client is not None:
            self.client = handed.client

    def handle_websocket_upgrade(self) -> None:
        """Serve the socket here, or hand it over."""
        if not self.app_state.get(FORWARDED):
            target = urlsplit(self.url.decode("latin-1"))
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
            worker = self._affinity.owner_of_socket(dict(parse_qsl(target.query)), headers)
            if worker is not None and self._affinity.hand_over(self.transport, self._head(), worker):
                return
        super().handle_websocket_upgrade()

    def _head(self) -> bytes:
        lines = [b"%b %b HTTP/1.1" % (self.scope["method"].encode(), self.url)]
        lines += [b"%b: %b" % pair for pair in self.headers]
        return b"\r\n".join([*lines, b"", b""])


async def serve_handed_over(handed: HandedOver, config: Config, server_state: ServerState, state: Any) -> None:
    """Serve a connection that came from another worker, as if it had been accepted here.

    Args:
        handed: The connection.
        config: uvicorn's, loaded.
        server_state: uvicorn's.
        state: What the application's lifespan left for its requests.
    """

    def protocol() -> Any:
        made: Any = config.http_protocol_class
        return made(config=config, server_state=server_state, app_state={**state, FORWARDED: handed})

    _, served = await asyncio.get_running_loop().connect_accepted_socket(protocol, handed.socket)
    if handed.head:
        served.data_received(handed.head)
