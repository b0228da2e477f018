"""A session that others wait for does not outlive its client for longer than that would need to come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.server import create_app, departed, native_sessions
from openenv_trl.server.native_sessions import NativeSession, NativeSessions
from openenv_trl.server.settings import AppSettings

from .conftest import Move, Relay, Seen, Table

pytestmark = pytest.mark.anyio


class Shared(Table):
    """Others wait for what its sessions do. A reset with seed 0 waits until it is let go, one with seed 1 is alone."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Seen:
        if seed == 0:
            await super().step_async(Move(waits=True))
        return Seen(metadata={"others_wait": seed != 1})

    async def step_async(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        return (await super().step_async(action)).model_copy(update={"done": action.text == "bye"})

    def close(self) -> None:
        self.ended.set()


@pytest.fixture
def shared(serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(native_sessions, "COMES_BACK_S", 0.2)
    monkeypatch.setattr(departed, "COMES_BACK_S", 3600.0)  # so that nobody gives way to another's session
    settings = AppSettings(resume_timeout_s=3600.0)
    return serve(create_app(Shared, Move, Seen, max_concurrent_envs=8, settings=settings))


async def test_a_session_that_others_wait_for_ends_soon_after_its_connection_broke(
    shared: str, peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(shared)
    await wire.open()
    assert (await wire.ask(2, 1, 2, {}))[3]["metadata"] == {"others_wait": True}
    wire.connection.transport.abort()
    assert await asyncio.to_thread(tables[0].ended.wait, 30)


async def test_a_client_that_broke_off_in_its_reset_keeps_others_waiting_no_longer(
    shared: str, peer: Callable[..., Any], tables: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    detach, is_detached = NativeSessions.detach, threading.Event()

    def watched(sessions: NativeSessions, session: NativeSession) -> None:
        detach(sessions, session)
        is_detached.set()

    monkeypatch.setattr(NativeSessions, "detach", watched)
    wire = await peer(shared)
    await wire.open()
    await wire.send([2, 1, 2, {"seed": 0}])
    assert await asyncio.to_thread(tables[0].waiting.wait, 30)
    wire.connection.transport.abort()
    assert await asyncio.to_thread(is_detached.wait, 30)
    tables[0].let_go()
    assert await asyncio.to_thread(tables[0].ended.wait, 30)


@pytest.mark.parametrize("alone", [True, False])
async def test_where_nobody_waits_a_session_is_kept_for_as_long_as_ever(
    shared: str, peer: Callable[..., Any], tables: list[Any], alone: bool
) -> None:
    wire = await peer(shared)
    for number in (1, 2):  # the second tells when the first, too, would be at its end
        await wire.send([1, number, 1, {}])
        assert (await wire.receive())[0] == 19
    await wire.ask(2, 1, 2, {"seed": 1 if alone else None})
    if not alone:
        assert (await wire.ask(3, 1, 3, {"text": "bye"}))[5] is True
    await wire.ask(2, 2, 2, {})
    wire.connection.transport.abort()
    assert await asyncio.to_thread(tables[1].ended.wait, 30)
    assert not tables[0].ended.is_set()


async def test_a_client_that_comes_back_in_time_goes_on_with_its_match(
    serve: Callable[..., str], tables: list[Any]
) -> None:
    url = serve(create_app(Shared, Move, Seen, max_concurrent_envs=8))
    async with Relay(url) as relay, GenericEnvClient(relay.url) as env:
        await env.reset()
        relay.cut()
        assert (await env.step({"text": "hit"})).observation["count"] == 1
        assert env.others_wait
        assert (await env.step({"text": "bye"})).done
        assert not env.others_wait
