"""The route of the Model Context Protocol: of all requests to ``/mcp``, those that speak it.

The others, in the public package's dialect, go on to the routes behind this one.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute, Match, get_route_path

from openenv_trl.server.access import AGENT_PATH
from openenv_trl.server.access_middleware import Message, Receive, Send, headers_of
from openenv_trl.server.host import SessionHost
from openenv_trl.server.mcp_protocol import McpProtocol
from openenv_trl.server.settings import AppSettings


def install_mcp(app: FastAPI, host: SessionHost, settings: AppSettings) -> None:
    """Give an application the protocol at ``/mcp``, and whoever reads a request's body first a way to hand it over.

    ``app.state.mcp_protocol`` is the ASGI application, for a request that only its body shows to speak the protocol.
    """
    protocol = McpProtocol(host, settings)
    app.state.mcp_protocol = protocol
    app.router.routes.insert(0, _McpRoute(protocol))


class _McpRoute(BaseRoute):
    def __init__(self, protocol: McpProtocol) -> None:
        self._protocol = protocol

    def matches(self, scope: Any) -> tuple[Match, Message]:
        if scope["type"] != "http" or get_route_path(scope) != AGENT_PATH:
            return Match.NONE, {}
        return (Match.FULL, {}) if self._protocol.speaks(headers_of(scope)) else (Match.NONE, {})

    async def handle(self, scope: Any, receive: Receive, send: Send) -> None:
        await self._protocol(scope, receive, send)
