"""``/promises``: what an environment's class declares of its episodes reaches a client that asks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from openenv_trl.client.inquiry import fetch_promises
from openenv_trl.environment import Environment
from openenv_trl.errors import ProtocolError
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State

pytestmark = pytest.mark.anyio


class Silent(Environment[Action, Observation, State]):
    def __init__(self, level: int = 0) -> None:
        self.level = level

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


class Repeatable(Silent):
    REPEATABLE = True


def build() -> Silent:
    return Silent()


def build_repeatable() -> Silent:
    return Silent()


build_repeatable.REPEATABLE = True  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("factory", "repeatable"),
    [
        (Silent, False),
        (Repeatable, True),
        (functools.partial(Repeatable, level=3), True),
        (build, False),
        (build_repeatable, True),
    ],
)
async def test_a_client_is_told_whether_episodes_can_be_repeated(
    serve: Callable[[Any], Any], factory: Any, repeatable: bool
) -> None:
    served = serve(create_app(factory, Action, Observation))
    assert await fetch_promises(f"http://{served.address}") == {"repeatable": repeatable}


async def test_a_server_that_does_not_know_the_question_says_so(serve: Callable[[Any], Any]) -> None:
    app = create_app(Silent, Action, Observation)
    app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") != "/promises"]
    served = serve(app)
    with pytest.raises(ProtocolError, match="404"):
        await fetch_promises(f"http://{served.address}")
