"""What the socket libraries alone can do: the same JSON as the echo environment's, and no environment behind it.

python benchmarks/_limits.py websockets|picows PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any
from urllib.parse import urlsplit

import orjson
import picows
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve


def answer(message: bytes) -> bytes:
    """The reply to a step, or to a reset."""
    said = orjson.loads(message)["data"].get("message", "ready")
    observation = {"observation": {"metadata": {}, "echo": said}, "reward": None, "done": False}
    return orjson.dumps({"type": "observation", "data": observation})


class PlainClient:
    """What both clients have in common: the calls of an `EnvClient`."""

    def __init__(self, base_url: str) -> None:
        self._url = f"ws://{urlsplit(base_url).netloc}/ws"

    async def connect(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def reset(self) -> Any:
        return await self._call({"type": "reset", "data": {}})

    async def step(self, message: str) -> Any:
        return await self._call({"type": "step", "data": {"message": message}})

    async def _call(self, message: dict[str, Any]) -> Any:
        raise NotImplementedError


class WebsocketsClient(PlainClient):
    """A session by the library `websockets`."""

    _socket: ClientConnection

    async def connect(self) -> None:
        self._socket = await connect(self._url, compression=None, open_timeout=120)

    async def close(self) -> None:
        await self._socket.close()

    async def _call(self, message: dict[str, Any]) -> Any:
        await self._socket.send(orjson.dumps(message), text=True)
        return orjson.loads(await self._socket.recv(decode=False))


class PicowsClient(PlainClient):
    """A session by the library `picows`."""

    class _Listener(picows.WSListener):
        def __init__(self) -> None:
            self.waiting: deque[asyncio.Future[bytes]] = deque()

        def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
            if frame.msg_type == picows.WSMsgType.TEXT:
                self.waiting.popleft().set_result(frame.get_payload_as_bytes())

    async def connect(self) -> None:
        self._transport, self._listener = await picows.ws_connect(self._Listener, self._url)

    async def close(self) -> None:
        self._transport.send_close(picows.WSCloseCode.OK)
        self._transport.disconnect()

    async def _call(self, message: dict[str, Any]) -> Any:
        reply = asyncio.get_running_loop().create_future()
        self._listener.waiting.append(reply)
        self._transport.send(picows.WSMsgType.TEXT, orjson.dumps(message))
        return orjson.loads(await reply)


class _PicowsAnswers(picows.WSListener):
    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type == picows.WSMsgType.TEXT:
            transport.send(picows.WSMsgType.TEXT, answer(frame.get_payload_as_bytes()))
        elif frame.msg_type == picows.WSMsgType.CLOSE:
            transport.disconnect()


async def _websockets_answers(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(answer(message.encode() if isinstance(message, str) else message), text=True)


async def _serve(library: str, port: int) -> None:
    if library == "websockets":
        server: Any = await serve(_websockets_answers, "127.0.0.1", port, compression=None, backlog=4096)
    else:
        server = await picows.ws_create_server(lambda _request: _PicowsAnswers(), "127.0.0.1", port, backlog=4096)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2])))
