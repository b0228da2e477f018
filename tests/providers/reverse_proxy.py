"""What stands between a client and a server in somebody's cloud: HTTP and WebSockets, passed on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiohttp import ClientConnectionError, ClientSession, WSMsgType, web


async def forward(request: web.Request, target: str) -> web.StreamResponse:
    """Asks the server behind for what this request asks; 502 where none answers."""
    async with ClientSession() as session:
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await _tunnel(request, session, target)
            kept = {
                name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")
            }
            async with session.request(request.method, target, data=await request.read(), headers=kept) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        except ClientConnectionError:
            return web.Response(status=502, text="nothing answers behind")


async def _tunnel(request: web.Request, session: ClientSession, target: str) -> web.WebSocketResponse:
    """Passes messages on between a client and the server, until one of them leaves."""
    protocols = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if each.strip()]
    async with session.ws_connect(target, protocols=protocols, max_msg_size=0) as behind:
        before = web.WebSocketResponse(protocols=[behind.protocol] if behind.protocol else [], max_msg_size=0)
        await before.prepare(request)

        async def pass_on(source: Any, sink: Any) -> None:
            async for message in source:
                if message.type == WSMsgType.TEXT:
                    await sink.send_str(message.data)
                elif message.type == WSMsgType.BINARY:
                    await sink.send_bytes(message.data)
            with suppress(ConnectionError):
                await sink.close()

        await asyncio.gather(pass_on(before, behind), pass_on(behind, before))
    return before
