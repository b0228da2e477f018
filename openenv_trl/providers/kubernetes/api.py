"""The few calls of the Kubernetes API that a provider needs, in plain dicts.

``kubernetes-asyncio`` gives the credentials, TLS, proxies and paths; its models are passed over, because they check
and convert every field of every pod in every event of a watch.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import anyio

from openenv_trl.providers.kubernetes.faults import ApiFault, ClusterUnreachable

if TYPE_CHECKING:
    import aiohttp

_AT_ONCE = 16
"""Requests that change something, or ask once, at the same time: a cluster has other users."""
_TRIES = 5
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_CALL_S = 30.0
_CONNECT_S = 10.0
WATCH_S = 300
"""Seconds after which a watch is begun again, so that one whose connection died unseen is not waited on for ever."""


@dataclass(frozen=True)
class Resource:
    """A kind of object, and where the API has it."""

    plural: str
    kind: str
    group: str
    prefix: str


JOBS = Resource("jobs", "Job", "batch", "/apis/batch/v1")
PODS = Resource("pods", "Pod", "", "/api/v1")
SERVICES = Resource("services", "Service", "", "/api/v1")
NETWORK_POLICIES = Resource("networkpolicies", "NetworkPolicy", "networking.k8s.io", "/apis/networking.k8s.io/v1")
EVENTS = Resource("events", "Event", "", "/api/v1")

Object = dict[str, Any]


class ClusterApi:
    """Calls to one namespace of one cluster.

    Args:
        client: An ``ApiClient`` of kubernetes-asyncio.
        namespace: Where all objects are.
        renew: Fetches new credentials for the client, after the cluster has refused those that it had.
    """

    def __init__(self, client: Any, namespace: str, renew: Callable[[], Awaitable[None]] | None = None) -> None:
        self.client = client
        self.namespace = namespace
        self._renew = renew
        self._renewing = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)

    @property
    def address(self) -> str:
        """The API server's address."""
        return self.client.configuration.host

    async def close(self) -> None:
        """Let go of all connections."""
        await self.client.close()

    async def create(self, resource: Resource, body: Object) -> Object:
        """Create an object. Its name must be one that nobody else gives, so that a lost answer can be asked again."""
        try:
            return await self._call("create", "POST", resource, body=body)
        except ApiFault as fault:
            if fault.status == 409 and fault.reason == "AlreadyExists" and fault.tries > 1:
                return await self.read(resource, body["metadata"]["name"])
            raise

    async def read(self, resource: Resource, name: str) -> Object:
        """Read an object."""
        return await self._call("get", "GET", resource, name)

    async def list(self, resource: Resource, *, labels: str = "", fields: str = "") -> Object:
        """List objects; returns the list as the API has it, with ``items`` and ``metadata``."""
        return await self._call("list", "GET", resource, query=_selectors(labels, fields))

    async def patch(self, resource: Resource, name: str, body: Object) -> Object:
        """Change fields of an object (a JSON merge patch: what is None is taken away)."""
        return await self._call("patch", "PATCH", resource, name, body=body)

    async def delete(self, resource: Resource, name: str, *, grace_s: int | None = None) -> bool:
        """Delete an object, and leave what it owns to the cluster. Returns False where it was gone already."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            await self._call("delete", "DELETE", resource, name, body=body)
        except ApiFault as fault:
            if fault.status == 404:
                return False
            raise
        return True

    async def log(self, pod: str, container: str, tail: int) -> str:
        """The last lines of a container."""
        query = [("container", container), ("tailLines", str(tail))]
        return await self._text("get", "GET", PODS, pod, "log", query=query)

    async def follow_log(self, pod: str, container: str, since: str) -> AsyncGenerator[str, None]:
        """A container's lines with their times, as they are written, from a time on (RFC 3339; all if empty)."""
        query = [("container", container), ("follow", "true"), ("timestamps", "true")]
        query += [("sinceTime", since)] if since else []
        async with self._stream("get", PODS, pod, "log", query=query) as response:
            async for line in response.content:
                yield line.decode(errors="replace").rstrip("\r\n")

    async def watch(self, resource: Resource, *, labels: str, version: str) -> AsyncGenerator[Object, None]:
        """The events of objects since a version of the list, until the server ends it.

        Raises:
            ApiFault: With status 410 where the version is too old: list again.
        """
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(WATCH_S)),
            ("resourceVersion", version),
            *_selectors(labels, ""),
        ]
        async with self._stream("watch", resource, query=query) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiFault.of_status(event["object"], "watch", resource, self.namespace)
                yield event

    async def headers(self) -> dict[str, str]:
        """The headers that say who calls."""
        headers: dict[str, str] = {}
        await self.client.update_params_for_auth(headers, [], ["BearerToken"])
        return headers

    def path(self, resource: Resource, name: str = "", part: str = "") -> str:
        """The path of a resource, an object, or a part of one."""
        rest = "".join(f"/{each}" for each in (name, part) if each)
        return f"{resource.prefix}/namespaces/{self.namespace}/{resource.plural}{rest}"

    async def renew(self) -> bool:
        """Fetch new credentials; False where there is no way to."""
        if self._renew is None:
            return False
        async with self._renewing:
            await self._renew()
        return True

    async def _call(self, verb: str, method: str, resource: Resource, name: str = "", **more: Any) -> Object:
        return json.loads(await self._text(verb, method, resource, name, **more))

    async def _text(
        self,
        verb: str,
        method: str,
        resource: Resource,
        name: str = "",
        part: str = "",
        *,
        query: list[tuple[str, str]] | None = None,
        body: Object | None = None,
    ) -> str:
        tries = 0
        renewed = False
        while True:
            tries += 1
            try:
                async with self._limiter, self._request(method, resource, name, part, query, body) as response:
                    text = await response.text()
                    fault = self._fault(response, text, verb, resource, part)
            except ClusterUnreachable as unreachable:
                if tries >= _TRIES or not unreachable.passing:
                    raise
                fault = None
            else:
                if fault is None:
                    return text
                fault.tries = tries
                if fault.status == 401 and not renewed and await self.renew():
                    renewed = True
                    continue
                if not fault.passing or tries >= _TRIES:
                    raise fault
            asked = 0.0 if fault is None else fault.retry_after_s
            await anyio.sleep(min(_LONGEST_PAUSE_S, max(asked, _FIRST_PAUSE_S * 2 ** (tries - 1))))

    @asynccontextmanager
    async def _stream(
        self, verb: str, resource: Resource, name: str = "", part: str = "", *, query: list[tuple[str, str]]
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        import aiohttp

        async with self._request("GET", resource, name, part, query, None, stream=True) as response:
            if response.status >= 400:
                fault = self._fault(response, await response.text(), verb, resource, part)
                assert fault is not None
                raise fault
            try:
                yield response
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ClusterUnreachable(self.address, error) from error

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        resource: Resource,
        name: str,
        part: str,
        query: list[tuple[str, str]] | None,
        body: Object | None,
        stream: bool = False,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        import aiohttp

        limits = (
            aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=WATCH_S + 30)
            if stream
            else aiohttp.ClientTimeout(total=_CALL_S, sock_connect=_CONNECT_S)
        )
        try:
            # The values of a query may have characters that a path may not: they are encoded by the client.
            response = cast(
                "aiohttp.ClientResponse",
                await self.client.call_api(
                    self.path(resource, name, part),
                    method,
                    query_params=query or [],
                    header_params={
                        "Accept": "application/json, */*",
                        "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json",
                    },
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=limits,
                ),
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError) as error:
            raise ClusterUnreachable(self.address, error) from error
        try:
            yield response
        finally:
            with suppress(Exception):
                response.close() if stream else response.release()

    def _fault(
        self, response: aiohttp.ClientResponse, text: str, verb: str, resource: Resource, part: str
    ) -> ApiFault | None:
        if response.status < 400:
            return None
        try:
            status: Mapping[str, Any] = json.loads(text)
        except ValueError:
            status = {"code": response.status, "reason": response.reason or "", "message": text[:500]}
        fault = ApiFault.of_status(status, verb, resource, self.namespace, part=part)
        fault.status = response.status
        with suppress(ValueError):
            fault.retry_after_s = float(response.headers.get("Retry-After", "0"))
        return fault


def _selectors(labels: str, fields: str) -> list[tuple[str, str]]:
    chosen = (("labelSelector", labels), ("fieldSelector", fields))
    return [(key, value) for key, value in chosen if value]
