"""A thing of an engine's is removed when it is gone, also where the engine takes its time."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from openenv_trl.errors import ProviderError
from openenv_trl.providers.docker.connection import open_engine
from openenv_trl.providers.docker.removal import remove_container

pytestmark = pytest.mark.anyio

CONTAINER = "7f3c" * 16


class BusyEngine:
    """Answers removals as an engine does that has much to do.

    Args:
        refusals: How often it refuses before the container is gone.
        why: What it says.
    """

    def __init__(self, refusals: float, why: str) -> None:
        self._refusals = refusals
        self._why = why

    async def listen(self, path: Path) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{version}/version", self._version)
        app.router.add_get("/version", self._version)
        app.router.add_delete("/{version}/containers/{id}", self._remove)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.UnixSite(runner, str(path)).start()
        return runner

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.41", "Version": "20.10"})

    async def _remove(self, request: web.Request) -> web.Response:
        if self._refusals <= 0:
            return web.json_response({"message": "No such container"}, status=404)
        self._refusals -= 1
        return web.json_response({"message": self._why}, status=409)


async def remove(engine: BusyEngine, path: Path) -> None:
    runner = await engine.listen(path)
    try:
        connection = await open_engine(f"unix://{path}")
        try:
            await remove_container(connection, CONTAINER, None)
        finally:
            await connection.close()
    finally:
        await runner.cleanup()


async def test_a_removal_that_is_under_way_is_waited_for(tmp_path: Path) -> None:
    why = f"removal of container {CONTAINER} is already in progress"
    await remove(BusyEngine(10, why), tmp_path / "engine.sock")  # for some 5 s


async def test_another_refusal_is_told_soon_with_the_command_that_removes_it(tmp_path: Path) -> None:
    engine = BusyEngine(float("inf"), "the driver is stuck")
    with pytest.raises(ProviderError, match=r"7f3c7f3c7f3c could not be removed: .*the driver is stuck"):
        await remove(engine, tmp_path / "engine.sock")
