"""A whole cluster in a thread: store, API server, controllers, node; with the faults that a test asks for.

It is a small thing of the tests' own, because no package has pods that run. What it is compared with: the same tests
pass against a real cluster (see ``conftest.py``), except those that need a fault which only this one has.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from aiohttp import web
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.providers.engines import docker
from tests.providers.kubernetes.cluster.api_server import ApiServer
from tests.providers.kubernetes.cluster.controllers import Controllers
from tests.providers.kubernetes.cluster.kubelet import LABEL, Kubelet
from tests.providers.kubernetes.cluster.store import Object, Store

T = TypeVar("T")


class Cluster:
    """One cluster, with a namespace ``rollouts``. Started and ended as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.folder = folder
        self.store = Store()
        self.controllers = Controllers(self.store)
        self.kubelet = Kubelet(self.store, self.id, self.controllers.warn)
        self.api = ApiServer(self.store, self.kubelet)
        self._portal: BlockingPortal | None = None
        self._ended: Any = None
        self.certificate, self._key = folder / "server.crt", folder / "server.key"
        _make_certificate(self.certificate, self._key)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def __enter__(self) -> Cluster:
        self._context = start_blocking_portal(name="test-cluster")
        self._portal = self._context.__enter__()
        self._ended, _ = self._portal.start_task(self._run)
        for name in ("default", "rollouts"):
            self.do(
                lambda name=name: self.store.create("namespaces", "", {"kind": "Namespace", "metadata": {"name": name}})
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.cancel()
        self._context.__exit__(None, None, None)
        left = docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={self.id}").stdout.split()
        if left:
            docker("rm", "--force", "--volumes", *left)

    def do(self, function: Callable[[], T]) -> T:
        """Runs something on the cluster's own loop. Where the cluster has failed, its error is raised."""
        assert self._portal is not None
        if self._ended.done():
            self._ended.result()
        return self._portal.call(function)

    def kubeconfig(self, token: str = "secret-token", **more: Any) -> Path:
        """Writes a kubeconfig for a token."""
        path = self.folder / f"kubeconfig-{uuid.uuid4().hex[:6]}"
        authority = base64.b64encode(self.certificate.read_bytes()).decode()
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": authority}
        context = {"cluster": "test", "user": "trainer", "namespace": "rollouts"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "trainer", "user": {"token": token, **more}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))
        return path

    def all(self, plural: str) -> list[Object]:
        """All objects of a kind."""
        return self.do(lambda: self.store.all(plural))

    def containers(self) -> list[str]:
        """The ids of all containers that the node has."""
        return docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={self.id}").stdout.split()

    def container_of(self, pod: str) -> Object:
        """A pod's container, as the engine tells of it."""
        container = self.do(lambda: self.kubelet.containers[pod])
        shown = subprocess.run(["docker", "inspect", container.id], capture_output=True, text=True, check=True)
        return json.loads(shown.stdout)[0]

    def heal(self) -> None:
        """Takes all faults away."""
        self.controllers.schedulable, self.controllers.pod_quota = True, None
        self.kubelet.answers = True
        self.api.forbidden.clear()
        self.api.unavailable = 0
        self.api.tokens = {"secret-token": "trainer"}

    def wait_empty(self, within_s: float = 120.0) -> None:
        """Waits until there are no objects and no containers any more; fails after a time."""
        deadline = time.monotonic() + within_s
        plurals = ("jobs", "pods", "services", "networkpolicies")
        while True:
            left = [f"{plural}/{each['metadata']['name']}" for plural in plurals for each in self.all(plural)]
            left += self.containers()
            if not left:
                return
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.1)

    def stop_serving(self) -> None:
        """Takes the API server away; the node goes on."""
        assert self._portal is not None
        self._portal.call(self._stop_site)

    def serve(self) -> None:
        """Brings the API server back, at the same address."""
        assert self._portal is not None
        self._portal.call(self._start_site)

    async def _stop_site(self) -> None:
        await self._runner.cleanup()

    async def _start_site(self) -> None:
        self._runner = web.AppRunner(self.api.application(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secured.load_cert_chain(self.certificate, self._key)
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, ssl_context=secured).start()

    async def _run(self, *, task_status: Any) -> None:
        await self._start_site()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.kubelet.run)
                tasks.start_soon(self._control)
                task_status.started()
        finally:
            with anyio.CancelScope(shield=True):
                self.api.drop_watches()
                await self._runner.cleanup()

    async def _control(self) -> None:
        while True:
            changed = self.store.changed
            self.controllers.step()
            if self.store.changed is changed:
                with anyio.move_on_after(0.5):
                    await changed.wait()
            else:
                await anyio.lowlevel.checkpoint()


def _make_certificate(certificate: Path, key: Path) -> None:
    names = ["-subj", "/CN=test-cluster", "-addext", "subjectAltName=IP:127.0.0.1"]
    usage = ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *usage, *files]
    subprocess.run(command, capture_output=True, check=True)
