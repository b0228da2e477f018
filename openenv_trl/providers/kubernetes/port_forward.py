"""Connections to a pod, carried through the API server: for an owner outside the cluster's network.

A port of this machine listens for each replica. Every connection to it becomes a WebSocket to the pod's ``portforward``
part, as ``kubectl port-forward`` has it: the first byte of a message is its channel, 0 for data and 1 for errors, and
the first message of each channel has the port's number.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

import anyio
from anyio.abc import SocketAttribute, SocketStream

from openenv_trl.providers.kubernetes.api import PODS, ClusterApi
from openenv_trl.providers.logs import logger

if TYPE_CHECKING:
    import aiohttp

    Socket = aiohttp.ClientWebSocketResponse[bool]

_DATA, _ERROR = 0, 1
_PROTOCOL = "v4.channel.k8s.io"
_PIECE = 64 * 1024
_CONNECT_S = 30.0
_HEARTBEAT_S = 30.0
_LARGEST_MESSAGE = 4 * 1024**2


class PortForward:
    """A port of this machine that leads to a pod's.

    Args:
        api: The cluster.
        pod: The pod's name.
        port: The port of the pod.
    """

    def __init__(self, api: ClusterApi, pod: str, port: int) -> None:
        self._api = api
        self._pod = pod
        self._port = port
        self._listener: anyio.abc.Listener[SocketStream] | None = None
        self.last_error = ""
        """Why the last connection could not be carried; empty where it could."""

    async def open(self) -> str:
        """Listen, and return the address."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self._listener = cast("anyio.abc.Listener[SocketStream]", listener)
        return f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"

    async def run(self) -> None:
        """Carry connections until cancelled."""
        assert self._listener is not None
        async with self._listener:
            await self._listener.serve(self._carry)

    async def close(self) -> None:
        """Let go of the port, where `run` did not get to it."""
        if self._listener is not None:
            await self._listener.aclose()

    async def _carry(self, local: SocketStream) -> None:
        async with local:
            try:
                socket = await self._connect()
            except Exception as error:
                # A connection that cannot be carried is closed, as one is that nobody listens for.
                self.last_error = f"{type(error).__name__}: {error}"
                logger.debug("%s: a connection could not be carried: %s", self._pod, self.last_error)
                return
            self.last_error = ""
            try:
                async with anyio.create_task_group() as both:
                    both.start_soon(self._to_pod, local, socket)
                    await self._from_pod(socket, local)
                    both.cancel_scope.cancel()
            finally:
                with anyio.move_on_after(2, shield=True):
                    await socket.close()

    async def _connect(self) -> Socket:
        client = self._api.client
        query = urlencode({"ports": self._port})
        url = f"{client.configuration.host}{self._api.path(PODS, self._pod, 'portforward')}?{query}"
        session = cast("aiohttp.ClientSession", client.rest_client.pool_manager)
        with anyio.fail_after(_CONNECT_S):
            return await session.ws_connect(
                url.replace("http", "ws", 1),
                headers=await self._api.headers(),
                protocols=(_PROTOCOL,),
                heartbeat=_HEARTBEAT_S,
                max_msg_size=_LARGEST_MESSAGE,
                compress=0,
                proxy=client.rest_client.proxy,
            )

    async def _to_pod(self, local: SocketStream, socket: Socket) -> None:
        channel = bytes([_DATA])
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, ConnectionError):
            while True:
                await socket.send_bytes(channel + await local.receive(_PIECE))
        # The protocol has no end of one direction alone: whoever stops to send is done.
        await socket.close()

    async def _from_pod(self, socket: Socket, local: SocketStream) -> None:
        import aiohttp

        begun = {_DATA: False, _ERROR: False}
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY:
                continue
            data: bytes = message.data
            channel, rest = data[0], data[1:]
            if channel not in begun:
                continue
            if not begun[channel]:
                begun[channel] = True
                if len(rest) == 2 and struct.unpack("<H", rest)[0] == self._port:
                    continue
            if channel == _ERROR:
                if rest:
                    self.last_error = rest.decode(errors="replace").strip()
                    logger.debug("%s: %s", self._pod, self.last_error)
                    return
            elif rest:
                try:
                    await local.send(rest)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
