"""Daytona in one process: its API over real HTTP, with sandboxes whose commands are really run.

A sandbox is a folder, an address of this machine's loopback network, and the processes that were started in it. In the
commands that it runs ``/app`` is the folder's, and ``0.0.0.0`` the address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from reverse_proxy import forward

from openenv_trl.chance import CHANCE

KEY = "dtn_key_of_the_tests"
STDOUT_MARK = b"\x01\x01\x01"


@dataclass
class Command:
    """One command of a session."""

    id: str
    text: str
    process: asyncio.subprocess.Process
    output: bytearray = field(default_factory=bytearray)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None


@dataclass
class Sandbox:
    """One sandbox."""

    id: str
    asked: dict[str, Any]
    folder: Path
    address: str
    state: str = "started"
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    reason: str | None = None
    looks_left: int = 0
    """Looks at it until its image is built."""
    becomes: str = "started"
    commands: dict[str, Command] = field(default_factory=dict)
    activity: int = 0


class StandInDaytona:
    """The API, its sandboxes, and the proxy before them."""

    def __init__(self, images: dict[str, Path | None]) -> None:
        self.images = images
        """By name: the folder that is an image's ``/app/env``; None for an empty image."""
        self.sandboxes: dict[str, Sandbox] = {}
        self.deleted: list[str] = []
        self.quota = 100
        self.broken_builds: dict[str, str] = {}
        self.answered: list[tuple[str, str, int]] = []
        """Each request that went to a sandbox's server: its method, its path, and the answer's status."""
        self.after_create: Callable[[], None] | None = None
        """Called once a sandbox is there, before the API answers."""
        self.url = ""
        self._network = f"127.{CHANCE.randint(2, 254)}.{CHANCE.randint(0, 254)}"
        """No other stand-in's: a server of that one's would answer in place of one that does not come up here."""
        self._numbers = iter(range(1, 250))
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stopped: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def stop(self) -> None:
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(30)

    def end(self, sandbox: Sandbox, state: str, reason: str | None = None) -> None:
        """Has a sandbox end by itself."""
        asyncio.run_coroutine_threadsafe(self._end(sandbox, state, reason), self._loop).result(30)

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        app = web.Application(middlewares=[self._check_key])
        app.router.add_post("/api/sandbox", self._create)
        app.router.add_get("/api/sandbox", self._list)
        app.router.add_get("/api/sandbox/{id}", self._get)
        app.router.add_delete("/api/sandbox/{id}", self._delete)
        app.router.add_post("/api/sandbox/{id}/last-activity", self._activity)
        app.router.add_get("/api/sandbox/{id}/build-logs-url", self._build_logs_url)
        app.router.add_get("/api/sandbox/{id}/ports/{port}/preview-url", self._preview_url)
        app.router.add_get("/api/sandbox/{id}/ports/{port}/signed-preview-url", self._signed_preview_url)
        app.router.add_get("/logs/{id}", self._build_logs)
        app.router.add_post("/toolbox/{id}/process/execute", self._execute)
        app.router.add_post("/toolbox/{id}/process/session", self._create_session)
        app.router.add_post("/toolbox/{id}/process/session/{session}/exec", self._execute_in_session)
        app.router.add_get("/toolbox/{id}/process/session/{session}/command/{command}", self._command)
        app.router.add_get("/toolbox/{id}/process/session/{session}/command/{command}/logs", self._logs)
        app.router.add_route("*", "/preview/{id}/{port}/{path:.*}", self._preview)
        app.router.add_route("*", "/signed/{token}/{id}/{port}/{path:.*}", self._signed)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stopped.wait()
        for sandbox in list(self.sandboxes.values()):
            await self._end(sandbox, "destroyed")
        await runner.cleanup()

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Any) -> web.StreamResponse:
        guarded = request.path.startswith(("/api/", "/toolbox/"))
        if guarded and request.headers.get("Authorization") != f"Bearer {KEY}":
            return _refusal(401, "Invalid credentials")
        found = request.match_info.get("id")
        if found is not None and found not in self.sandboxes:
            return _refusal(404, f"Sandbox with ID {found} not found")
        return await handler(request)

    def _of(self, request: web.Request) -> Sandbox:
        return self.sandboxes[request.match_info["id"]]

    def _told(self, sandbox: Sandbox) -> dict[str, Any]:
        asked = sandbox.asked
        return {
            "id": sandbox.id,
            "organizationId": "org",
            "name": asked.get("name") or sandbox.id,
            "user": asked.get("user") or "daytona",
            "env": asked.get("env") or {},
            "labels": asked.get("labels") or {},
            "public": bool(asked.get("public")),
            "networkBlockAll": bool(asked.get("networkBlockAll")),
            "kvm": False,
            "target": asked.get("target") or "us",
            "cpu": asked.get("cpu") or 1,
            "gpu": asked.get("gpu") or 0,
            "memory": asked.get("memory") or 1,
            "disk": asked.get("disk") or 3,
            "state": sandbox.state,
            "errorReason": sandbox.reason,
            "autoStopInterval": asked.get("autoStopInterval", 15),
            "autoDeleteInterval": asked.get("autoDeleteInterval", -1),
            "toolboxProxyUrl": f"{self.url}/toolbox",
        }

    async def _create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if len(self.sandboxes) >= self.quota:
            return _refusal(403, f"Total CPU quota exceeded. Maximum allowed: {self.quota}.")
        image = asked.get("snapshot") or asked["buildInfo"]["dockerfileContent"].split("FROM ")[1].split()[0]
        if image not in self.images:
            return _refusal(400, f"Snapshot {image} not found. Did you add it through the Daytona Dashboard?")
        folder = Path(tempfile.mkdtemp(prefix="sandbox-"))
        (folder / "app").mkdir()
        environment = self.images[image]
        if environment is not None:
            (folder / "app" / "env").symlink_to(environment)
        sandbox = Sandbox(uuid.uuid4().hex, asked, folder, f"{self._network}.{next(self._numbers)}")
        if "buildInfo" in asked:
            sandbox.state, sandbox.looks_left = "pending_build", 2
        if image in self.broken_builds:
            sandbox.becomes, sandbox.reason = "build_failed", self.broken_builds[image]
        self.sandboxes[sandbox.id] = sandbox
        if self.after_create is not None:
            await asyncio.to_thread(self.after_create)
        return web.json_response(self._told(sandbox))

    async def _list(self, request: web.Request) -> web.Response:
        wanted = json.loads(request.query.get("labels", "{}")).items()
        found = [each for each in self.sandboxes.values() if wanted <= each.asked.get("labels", {}).items()]
        return web.json_response({"items": [self._told(each) for each in found], "total": len(found)})

    async def _get(self, request: web.Request) -> web.Response:
        sandbox = self._of(request)
        if sandbox.state in ("pending_build", "building_snapshot"):
            sandbox.looks_left -= 1
            sandbox.state = "building_snapshot" if sandbox.looks_left > 0 else sandbox.becomes
        return web.json_response(self._told(sandbox))

    async def _delete(self, request: web.Request) -> web.Response:
        sandbox = self._of(request)
        await self._end(sandbox, "destroyed")
        return web.json_response(self._told(sandbox))

    async def _end(self, sandbox: Sandbox, state: str, reason: str | None = None) -> None:
        sandbox.state, sandbox.reason = state, reason
        for command in sandbox.commands.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.process.pid, signal.SIGKILL)
            await command.process.wait()
        if state == "destroyed":
            self.sandboxes.pop(sandbox.id, None)
            self.deleted.append(sandbox.id)
            shutil.rmtree(sandbox.folder, ignore_errors=True)

    async def _activity(self, request: web.Request) -> web.Response:
        self._of(request).activity += 1
        return web.Response(status=200)

    async def _build_logs_url(self, request: web.Request) -> web.Response:
        return web.json_response({"url": f"{self.url}/logs/{self._of(request).id}"})

    async def _build_logs(self, request: web.Request) -> web.Response:
        reason = self._of(request).reason
        return web.Response(text=f"Step 1/1: FROM it\n{reason or 'Successfully built'}\n")

    async def _preview_url(self, request: web.Request) -> web.Response:
        sandbox, port = self._of(request), request.match_info["port"]
        url = f"{self.url}/preview/{sandbox.id}/{port}"
        return web.json_response({"sandboxId": sandbox.id, "url": url, "token": sandbox.token})

    async def _signed_preview_url(self, request: web.Request) -> web.Response:
        sandbox, port = self._of(request), request.match_info["port"]
        url = f"{self.url}/signed/{sandbox.token}/{sandbox.id}/{port}"
        return web.json_response({"sandboxId": sandbox.id, "port": int(port), "token": sandbox.token, "url": url})

    async def _preview(self, request: web.Request) -> web.StreamResponse:
        sandbox = self._of(request)
        if not sandbox.asked.get("public") and request.headers.get("X-Daytona-Preview-Token") != sandbox.token:
            return web.Response(status=401, text="unauthorized")
        return await self._inside(request, sandbox)

    async def _signed(self, request: web.Request) -> web.StreamResponse:
        sandbox = self._of(request)
        if request.match_info["token"] != sandbox.token:
            return web.Response(status=401, text="unauthorized")
        return await self._inside(request, sandbox)

    async def _inside(self, request: web.Request, sandbox: Sandbox) -> web.StreamResponse:
        port, path = request.match_info["port"], request.match_info["path"]
        answer = await forward(request, f"http://{sandbox.address}:{port}/{path}")
        self.answered.append((request.method, f"/{path}", answer.status))
        return answer

    async def _run(self, sandbox: Sandbox, text: str) -> asyncio.subprocess.Process:
        text = re.sub(r"(?<![\w/])/app\b", f"{sandbox.folder}/app", text).replace("0.0.0.0", sandbox.address)
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            **sandbox.asked.get("env", {}),
        }
        return await asyncio.create_subprocess_exec(
            *("sh", "-c", text),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
            cwd=sandbox.folder,
            start_new_session=True,
        )

    async def _execute(self, request: web.Request) -> web.Response:
        process = await self._run(self._of(request), (await request.json())["command"])
        output, _ = await process.communicate()
        return web.json_response({"exitCode": process.returncode, "result": output.decode()})

    async def _create_session(self, request: web.Request) -> web.Response:
        return web.Response(status=201)

    async def _execute_in_session(self, request: web.Request) -> web.Response:
        asked, sandbox = await request.json(), self._of(request)
        assert asked["runAsync"]
        command = Command(uuid.uuid4().hex, asked["command"], await self._run(sandbox, asked["command"]))
        sandbox.commands[command.id] = command
        self._reading = asyncio.ensure_future(_collect(command))
        return web.json_response({"cmdId": command.id}, status=202)

    async def _command(self, request: web.Request) -> web.Response:
        command = self._of(request).commands[request.match_info["command"]]
        told = {"id": command.id, "command": command.text}
        return web.json_response(told if command.exit_code is None else {**told, "exitCode": command.exit_code})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        command = self._of(request).commands[request.match_info["command"]]
        if request.query.get("follow") != "true":
            text = command.output.decode()
            return web.json_response({"output": text, "stdout": text, "stderr": ""})
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        sent = 0
        while True:
            more, ended = command.more, command.exit_code is not None
            if len(command.output) > sent:
                part = bytes(command.output[sent:])
                sent += len(part)
                await stream.send_bytes(STDOUT_MARK + part)
            elif ended:
                break
            else:
                await more.wait()
        await stream.close()
        return stream


async def _collect(command: Command) -> None:
    assert command.process.stdout is not None
    while part := await command.process.stdout.read(65536):
        command.output += part
        _tell(command)
    code = await command.process.wait()
    command.exit_code = code if code >= 0 else 128 - code
    _tell(command)


def _tell(command: Command) -> None:
    more, command.more = command.more, asyncio.Event()
    more.set()


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"statusCode": status, "message": message, "error": "refused"}, status=status)


@contextmanager
def stand_in_daytona(images: dict[str, Path | None]) -> Iterator[StandInDaytona]:
    """Daytona for a block; after it nothing that was started there is left."""
    daytona = StandInDaytona(images)
    daytona.start()
    try:
        yield daytona
    finally:
        daytona.stop()
