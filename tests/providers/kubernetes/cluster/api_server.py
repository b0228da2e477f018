"""The API server of the test cluster: a small part of Kubernetes' HTTP API, spoken as the real one speaks it.

Bearer tokens (401), rules that forbid (403), missing namespaces and objects (404), names that are taken (409), watches
with versions, bookmarks and 410 Gone, deletion, merge patches, logs that are followed, port-forward over WebSocket, and
as much of discovery as ``kubectl`` needs. Not done: admission, defaults and validation of objects, field management.
"""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import anyio
from aiohttp import WSMsgType, web

from tests.providers.kubernetes.cluster.kubelet import Kubelet
from tests.providers.kubernetes.cluster.store import Change, Object, Refused, Store

GROUPS = {
    "v1": {"pods": "Pod", "services": "Service", "events": "Event", "namespaces": "Namespace"},
    "batch/v1": {"jobs": "Job"},
    "apps/v1": {"deployments": "Deployment"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
}
KINDS = {plural: (version, kind) for version, kinds in GROUPS.items() for plural, kind in kinds.items()}
_VERBS = {"POST": "create", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}


class ApiServer:
    """Serves the store.

    Args:
        store: The objects.
        kubelet: The node, for logs and connections.
    """

    def __init__(self, store: Store, kubelet: Kubelet) -> None:
        self.store = store
        self.kubelet = kubelet
        self.tokens = {"secret-token": "trainer"}
        """Who may call at all, by token."""
        self.forbidden: set[tuple[str, str]] = set()
        """Verbs and resources that are refused."""
        self.unavailable = 0
        """How many calls from now on are answered 503."""
        self.requests: list[tuple[str, str]] = []
        self._watches: set[web.StreamResponse] = set()
        self._watch_scopes: set[anyio.CancelScope] = set()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._checked])
        add = app.router.add_route
        add("GET", "/version", self._version)
        add("GET", "/api", self._discover)
        add("GET", "/apis", self._discover)
        add("GET", "/api/{version}", self._discover)
        add("GET", "/apis/{group}/{version}", self._discover)
        for prefix in ("/api/v1", "/apis/{group}/{version}"):
            add("GET", f"{prefix}/namespaces/{{namespace}}", self._namespace)
            add("*", f"{prefix}/namespaces/{{namespace}}/{{plural}}", self._collection)
            add("*", f"{prefix}/namespaces/{{namespace}}/{{plural}}/{{name}}", self._one)
            add("GET", f"{prefix}/namespaces/{{namespace}}/pods/{{name}}/log", self._log)
            add("GET", f"{prefix}/namespaces/{{namespace}}/pods/{{name}}/portforward", self._portforward)
        return app

    def drop_watches(self) -> None:
        """Ends the connection of every watch."""
        for scope in self._watch_scopes:
            scope.cancel()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            self._admit(request)
            return await handler(request)
        except Refused as refused:
            headers = {"Retry-After": "0"} if refused.code == 503 else {}
            return web.json_response(refused.status, status=refused.code, headers=headers)

    def _admit(self, request: web.Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        user = self.tokens.get(token)
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if self.unavailable:
            self.unavailable -= 1
            raise Refused(503, "ServiceUnavailable", "apiserver is shutting down")
        route = request.match_info
        if "namespace" not in route:
            return
        plural = route.get("plural", "pods")
        part = request.path.rpartition("/")[2]
        resource = f"pods/{part}" if part in ("log", "portforward") else plural
        verb = _VERBS.get(request.method, "get" if "name" in route else "list")
        verb = "watch" if request.query.get("watch") == "true" else verb
        self.requests.append((verb, resource))
        if (verb, resource) in self.forbidden:
            group = KINDS[plural][0].rpartition("/")[0]
            raise Refused(
                403,
                "Forbidden",
                f'{plural}.{group} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group '
                f'"{group}" in the namespace "{route["namespace"]}"',
            )

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"})

    async def _discover(self, request: web.Request) -> web.Response:
        route = request.match_info
        if request.path == "/api":
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if request.path == "/apis":
            groups: list[Object] = []
            for version in GROUPS:
                if "/" in version:
                    of = {"groupVersion": version, "version": "v1"}
                    groups.append({"name": version.partition("/")[0], "versions": [of], "preferredVersion": of})
            return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        version = "/".join(filter(None, [route.get("group"), route["version"]]))
        verbs = ["create", "delete", "get", "list", "patch", "watch"]
        resources = [
            {"name": plural, "singularName": "", "namespaced": plural != "namespaces", "kind": kind, "verbs": verbs}
            for plural, kind in GROUPS.get(version, {}).items()
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
        return web.json_response(listed)

    async def _namespace(self, request: web.Request) -> web.Response:
        return web.json_response(self.store.get("namespaces", "", request.match_info["namespace"]))

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        namespace, plural = request.match_info["namespace"], request.match_info["plural"]
        version, kind = KINDS[plural]
        if request.method == "POST":
            if self.store.find("namespaces", "", namespace) is None:
                details = {"name": namespace, "kind": "namespaces"}
                raise Refused(404, "NotFound", f'namespaces "{namespace}" not found', details)
            return web.json_response(self.store.create(plural, namespace, await request.json()), status=201)
        labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        if request.query.get("watch") == "true":
            return await self._watch(request, plural, namespace, labels)
        items = self.store.all(plural, namespace, labels, fields)
        metadata = {"resourceVersion": self.store.version}
        listed = {"apiVersion": version, "kind": f"{kind}List", "metadata": metadata, "items": items}
        return web.json_response(listed)

    async def _one(self, request: web.Request) -> web.Response:
        route = request.match_info
        key = (route["plural"], route["namespace"], route["name"])
        if request.method == "DELETE":
            body = json.loads(await request.text() or "{}")
            return web.json_response(self.store.delete(*key, grace_s=body.get("gracePeriodSeconds")))
        if request.method == "PATCH":
            patch = await request.json()
            self.store.get(*key)
            return web.json_response(self.store.change(*key, lambda given: _merge(given, patch)))
        return web.json_response(self.store.get(*key))

    async def _watch(self, request: web.Request, plural: str, namespace: str, labels: str) -> web.StreamResponse:
        version = int(request.query["resourceVersion"])
        self.store.since(version, plural, namespace, labels)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with anyio.CancelScope() as scope:
            self._watch_scopes.add(scope)
            try:
                while True:
                    changed = self.store.changed
                    try:
                        for each in self.store.since(version, plural, namespace, labels):
                            version = each.version
                            await response.write(_line(each))
                    except Refused as refused:
                        await response.write(json.dumps({"type": "ERROR", "object": refused.status}).encode() + b"\n")
                        break
                    await changed.wait()
            finally:
                self._watch_scopes.discard(scope)
        if scope.cancelled_caught and request.transport is not None:
            request.transport.abort()
        return response

    async def _log(self, request: web.Request) -> web.StreamResponse:
        pod = self.store.get("pods", request.match_info["namespace"], request.match_info["name"])
        container = self.kubelet.containers.get(pod["metadata"]["name"])
        if container is None:
            told = f'container "server" in pod "{pod["metadata"]["name"]}" is waiting to start: ContainerCreating'
            raise Refused(400, "BadRequest", told)
        times = request.query.get("timestamps") == "true"
        wanted: dict[str, Any] = {"stdout": True, "stderr": True, "timestamps": times}
        if "tailLines" in request.query:
            wanted["tail"] = int(request.query["tailLines"])
        if request.query.get("follow") != "true":
            return web.Response(text="".join(await container.log(**wanted)))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for line in container.log(follow=True, **wanted):
                if line.partition(" ")[0] >= request.query.get("sinceTime", ""):
                    await response.write(line.encode())
        return response

    async def _portforward(self, request: web.Request) -> web.StreamResponse:
        pod = self.store.get("pods", request.match_info["namespace"], request.match_info["name"])
        port = int(request.query["ports"])
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + struct.pack("<H", port))
        try:
            stream = await anyio.connect_tcp(pod["status"].get("podIP", ""), port)
        except OSError as error:
            await socket.send_bytes(b"\x01" + f"error forwarding port {port}: {error}".encode())
            await socket.close()
            return socket

        async def from_pod(scope: anyio.CancelScope) -> None:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await socket.send_bytes(b"\x00" + await stream.receive())
            scope.cancel()

        async with stream, anyio.create_task_group() as both:
            both.start_soon(from_pod, both.cancel_scope)
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[:1] == b"\x00":
                    await stream.send(message.data[1:])
            both.cancel_scope.cancel()
        await socket.close()
        return socket


def _line(change: Change) -> bytes:
    return json.dumps({"type": change.kind, "object": change.object}).encode() + b"\n"


def _merge(under: Object, over: Object) -> None:
    for key, value in over.items():
        if value is None:
            under.pop(key, None)
        elif isinstance(value, dict) and isinstance(under.get(key), dict):
            _merge(under[key], value)
        else:
            under[key] = value
