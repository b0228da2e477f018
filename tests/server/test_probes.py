"""``/ready`` and ``/capacity`` of an application, asked over HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any

import anyio

from openenv_trl.environment import Environment
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State
from openenv_trl.wire.frames import WAIT_HEADER


class Still(Environment[Action, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


def get(address: str, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    content = json.loads(response.read())
    connection.close()
    return response.status, content


def test_capacity_counts_sessions_and_those_who_wait(serve: Callable[[Any], Any]) -> None:
    from websockets.sync.client import connect

    served = serve(create_app(Still, Action, Observation, max_concurrent_envs=2))
    expected = {"active_sessions": 0, "max_sessions": 2, "available_slots": 2, "waiting": 0, "draining": False}
    assert get(served.address, "/capacity") == (200, {**expected, "workers": 1})
    for socket in (served.socket(), served.socket()):
        socket.send('{"type":"state"}')
        socket.recv(timeout=30)
    headers = {WAIT_HEADER: "60"}
    served.stack.enter_context(connect(f"ws://{served.address}/ws", additional_headers=headers, close_timeout=1))
    while get(served.address, "/capacity")[1]["waiting"] != 1:
        pass
    status, content = get(served.address, "/capacity")
    assert (status, content["active_sessions"], content["available_slots"]) == (200, 2, 0)
    assert get(served.address, "/ready") == (200, {"ready": True})  # full is not broken: who waits gets its turn


def test_a_server_that_drains_is_not_ready_but_healthy(serve: Callable[[Any], Any]) -> None:
    app = create_app(Still, Action, Observation)
    served = serve(app)
    app.state.session_host.draining = True
    status, content = get(served.address, "/ready")
    assert (status, content["ready"]) == (503, False)
    assert "draining" in content["reason"]
    assert get(served.address, "/health")[0] == 200
    assert get(served.address, "/capacity")[1]["draining"] is True


def test_a_server_that_starts_is_not_ready(serve: Callable[[Any], Any]) -> None:
    app = create_app(Still, Action, Observation)
    app.state.session_host.builder.warm_up = wait_for_ever
    served = serve(app)
    status, content = get(served.address, "/ready")
    assert (status, content["ready"]) == (503, False)
    assert "starting" in content["reason"]
    assert get(served.address, "/health")[0] == 200


async def wait_for_ever() -> None:
    await anyio.sleep_forever()
