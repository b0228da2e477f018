"""A Hub in one process: what it says of its Spaces, over real HTTP; each Space is a proxy to a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from reverse_proxy import forward


@dataclass
class StandInSpace:
    """One Space, as it stands."""

    upstream: str
    """The environment server behind it."""
    stage: str = "RUNNING"
    private: bool = False
    token: str = ""
    """The token that may see a private one."""
    error: str = ""
    wakes_after: int = 0
    """Looks at the Hub that a sleeping one takes until it runs, once it was visited."""
    wakes_as: str = "RUNNING"
    seen: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request to it."""
    visits: int = 0


class StandInHub:
    """The Hub and its Spaces."""

    def __init__(self) -> None:
        self.spaces: dict[str, StandInSpace] = {}
        self.url = ""
        self.broken = False
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

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        app = web.Application()
        app.router.add_get("/api/spaces/{owner}/{name}", self._api)
        app.router.add_route("*", "/at/{owner}/{name}/{path:.*}", self._visit)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stopped.wait()
        await runner.cleanup()

    async def _api(self, request: web.Request) -> web.Response:
        if self.broken:
            return web.Response(text="<html>maintenance</html>", content_type="text/html")
        repository = f"{request.match_info['owner']}/{request.match_info['name']}"
        space = self.spaces.get(repository)
        if space is None:
            return web.json_response({"error": "Repository not found"}, status=404)
        if space.private and request.headers.get("Authorization") != f"Bearer {space.token}":
            return web.json_response({"error": "Invalid username or password."}, status=401)
        if space.stage in ("SLEEPING", "APP_STARTING") and space.visits:
            space.wakes_after -= 1
            space.stage = "APP_STARTING" if space.wakes_after > 0 else space.wakes_as
        runtime: dict[str, Any] = {"stage": space.stage, "hardware": {"current": "cpu-basic"}}
        if space.error:
            runtime["errorMessage"] = space.error
        return web.json_response(
            {"id": repository, "private": space.private, "host": f"{self.url}/at/{repository}", "runtime": runtime}
        )

    async def _visit(self, request: web.Request) -> web.StreamResponse:
        space = self.spaces[f"{request.match_info['owner']}/{request.match_info['name']}"]
        space.seen.append(dict(request.headers))
        space.visits += 1
        if space.private and request.headers.get("Authorization") != f"Bearer {space.token}":
            return web.Response(status=404, text="Sorry, we can't find the page you are looking for.")
        if space.stage != "RUNNING":
            return web.Response(text="<html>Preparing Space</html>", content_type="text/html")
        return await forward(request, f"{space.upstream}/{request.match_info['path']}")


@contextmanager
def stand_in_hub() -> Iterator[StandInHub]:
    """A Hub for a block."""
    hub = StandInHub()
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()
