"""A session that is reaped while a connection holds it, and whose environment takes its time to close."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openenv_trl.environment import Environment
from openenv_trl.errors import OpenEnvError
from openenv_trl.server import create_app
from openenv_trl.server.host import SessionHost
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State

pytestmark = pytest.mark.anyio


class SlowToClose(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    closing: asyncio.Event
    may_close: asyncio.Event

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()

    async def close(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.closing.set()
        await self.may_close.wait()


async def test_its_connection_may_go_and_another_is_told_that_it_is_over() -> None:
    SlowToClose.closing, SlowToClose.may_close = asyncio.Event(), asyncio.Event()
    settings = AppSettings(idle_timeout_s=0.1, execution="loop")
    app = create_app(SlowToClose, Action, Observation, max_concurrent_envs=2, settings=settings)
    host: SessionHost = app.state.session_host
    async with host.running():
        hosted = await host.open()
        await asyncio.wait_for(SlowToClose.closing.wait(), 60)
        with pytest.raises(OpenEnvError):
            host.hold(hosted.session_id)
        host.release(hosted.session_id, broke=True)
        await host.close(hosted.session_id, when_released=True)
        SlowToClose.may_close.set()
        await asyncio.wait_for(host.idle(), 60)
        assert host.status.active_sessions == 0


async def test_who_left_a_session_is_not_remembered_by_it() -> None:
    host: SessionHost = create_app(SlowToClose, Action, Observation, max_concurrent_envs=2).state.session_host
    hosted = await host.open()
    told: list[int] = []
    for number in range(3):

        def tell(number: int = number) -> None:
            told.append(number)

        hosted.watch_end(tell)
        if number < 2:
            hosted.watch_end_no_more(tell)
    SlowToClose.closing, SlowToClose.may_close = asyncio.Event(), asyncio.Event()
    SlowToClose.may_close.set()
    await hosted.close()
    assert told == [2]
    host.shut_down()
