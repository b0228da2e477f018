"""What a server's log says of sessions: which one, in which episode, at which call; and never a token."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from openenv_trl.client import GenericEnvClient
from openenv_trl.environment import Environment
from openenv_trl.errors import EnvironmentExecutionError, SessionCapacityError
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State

pytestmark = pytest.mark.anyio

TOKEN = "trainer-secret-0123456789"


class Fragile(Environment[Action, Observation, State]):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise RuntimeError("the machine broke")

    @property
    def state(self) -> State:
        return State()


async def test_records_name_the_session_the_episode_and_the_call(
    serve: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "openenv_trl.server")
    app = create_app(Fragile, Action, Observation, settings=AppSettings(token=TOKEN))
    address = serve(app).address
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with GenericEnvClient(address, headers=headers) as env:
        (session,) = app.state.session_host.sessions.all()
        await env.reset(episode_id="e-7")
        with pytest.raises(EnvironmentExecutionError):
            await env.step({})
        with pytest.raises(SessionCapacityError):
            await GenericEnvClient(address, headers=headers).connect()
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=60) as http:
        await http.get("/metadata", headers={"Authorization": f"Bearer {TOKEN}x"})
    ours = [record for record in caplog.records if record.name == "openenv_trl.server"]
    (raised,) = [record for record in ours if record.levelno == logging.ERROR]
    told = raised.__dict__
    assert (told["session_id"], told["episode_id"], told["call"]) == (session.session_id, "e-7", "step")
    assert told["transport"]
    assert raised.exc_info
    assert raised.exc_info[1].args == ("the machine broke",)  # type: ignore[union-attr]
    opened, ended = (
        [record for record in ours if record.__dict__.get("session_id") == session.session_id and word in record.msg]
        for word in ("opened", "ended")
    )
    assert [record.levelno for record in (*opened, *ended)] == [logging.DEBUG, logging.DEBUG]
    assert any("refused" in record.msg and record.levelno == logging.INFO for record in ours)
    for record in caplog.records:
        if not record.name.startswith(("httpcore", "httpx", "websockets", "picows")):
            assert TOKEN not in f"{record.getMessage()} {record.exc_text}"
