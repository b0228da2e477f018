"""What a client gives up ends on the server too, whatever the moment: no slot is kept by a session that nobody has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from openenv_trl.client import GenericEnvClient

pytestmark = pytest.mark.anyio


async def _until_active(url: str, sessions: int) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        with anyio.fail_after(60):
            while (await http.get(url + "/capacity")).json()["active_sessions"] != sessions:  # noqa: ASYNC110
                await anyio.sleep(0.02)


async def test_a_call_that_is_cancelled_when_its_reply_is_on_its_way(serve: Callable[..., str]) -> None:
    url = serve()
    async with GenericEnvClient(url) as other:
        await other.reset()
        client = GenericEnvClient(url)
        await client.reset()
        step = asyncio.create_task(client.step({"text": "a"}))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.3
        while loop.time() < until:  # the reply comes, and is not read
            pass
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        await _until_active(url, 1)
        await other.step({"text": "b"})


async def test_an_opening_that_is_cancelled_when_its_reply_is_on_its_way(serve: Callable[..., str]) -> None:
    url = serve()
    async with GenericEnvClient(url) as other:
        await other.reset()
        client = GenericEnvClient(url)
        opening = asyncio.create_task(client.connect())
        await _until_active(url, 2)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await client.close()
        await _until_active(url, 1)
        await other.step({"text": "b"})


async def test_a_connection_whose_sessions_were_given_up_while_it_was_broken_is_closed(
    serve: Callable[..., str], relay: Any
) -> None:
    async with relay(serve(resume_timeout_s=20)) as line:
        client = GenericEnvClient(line.url)
        await client.reset()
        connection: Any = client._session._link._connection  # type: ignore[union-attr]
        there, before = line.target, line.connections
        line.lead_nowhere()
        line.cut()
        step = asyncio.create_task(client.step({"text": "a"}))
        with anyio.fail_after(60):
            while line.connections == before:  # noqa: ASYNC110 - until it is being made again
                await anyio.sleep(0.01)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        line.target = there
        with anyio.fail_after(60):
            await connection._gone.wait()
        assert not connection.is_usable
