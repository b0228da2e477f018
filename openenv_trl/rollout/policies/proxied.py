"""Requests through a proxy, by httpx: for hosted endpoints behind a company's network.

Its pool takes time in the square of its connections, so that 256 requests at once take seconds of CPU in one pool and
tenths of a second in 32; requests are spread over pools.
"""

from __future__ import annotations

import itertools
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from openenv_trl.rollout.policies.http_connection import ConnectionTrouble, HttpAnswer
from openenv_trl.rollout.policies.settings import EndpointSettings

if TYPE_CHECKING:
    import httpx

_CONNECTIONS_OF_A_POOL = 8


def proxy_applies(url: SplitResult) -> bool:
    """Whether the environment (``HTTPS_PROXY``, ``NO_PROXY`` and their like) puts a proxy before this address."""
    return url.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(url.netloc)


class ProxiedExchange:
    """Exchanges by httpx, which reads the environment's proxies."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        pools = -(-settings.max_connections // _CONNECTIONS_OF_A_POOL)
        self._pools: list[httpx.AsyncClient | None] = [None] * pools
        self._next = itertools.cycle(range(pools))

    async def request(
        self, method: str, url: SplitResult, path: str, headers: dict[str, str], body: bytes
    ) -> HttpAnswer:
        """One exchange, on the next pool."""
        import httpx

        client = self._client(next(self._next))
        target = url._replace(path=url.path.rstrip("/") + path).geturl()
        try:
            answer = await client.request(method, target, headers=headers, content=body)
        except httpx.HTTPError as error:
            raise ConnectionTrouble(str(error) or type(error).__name__) from error
        return HttpAnswer(answer.status_code, dict(answer.headers), answer.content)

    async def aclose(self) -> None:
        """Close all pools."""
        for index, client in enumerate(self._pools):
            if client is not None:
                self._pools[index] = None
                await client.aclose()

    def _client(self, index: int) -> httpx.AsyncClient:
        import httpx

        client = self._pools[index]
        if client is None:
            settings = self._settings
            client = self._pools[index] = httpx.AsyncClient(
                # The request's own deadline is kept outside, where it holds for every kind of exchange.
                timeout=httpx.Timeout(None, connect=settings.connect_timeout_s),
                limits=httpx.Limits(max_connections=None, keepalive_expiry=settings.keepalive_s),
                verify=settings.verify_tls,
            )
        return client
