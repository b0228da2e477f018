"""A client that leaves, at whatever moment, leaves nothing behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from openenv_trl.environment import Environment
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State

Ask = Callable[[Any, str], str]
STEP, STATE = '{"type":"step","data":{}}', '{"type":"state"}'


class Events:
    """What happened in the server, for a test to wait for."""

    def __init__(self) -> None:
        self.building = threading.Event()
        self.stepping = threading.Event()
        self.go_on = threading.Event()
        self.closed = threading.Semaphore(0)
        self.calls: list[str] = []


@pytest.fixture
def events() -> Events:
    return Events()


def _environment(events: Events) -> type[Environment[Action, Observation, State]]:
    class Watched(Environment[Action, Observation, State]):
        def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
            return Observation()

        def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
            events.stepping.set()
            events.go_on.wait(30)
            events.calls.append("step returned")
            return Observation()

        @property
        def state(self) -> State:
            return State()

        def close(self) -> None:
            events.calls.append("close")
            events.closed.release()

    return Watched


def _wait_until_free(served: Any, ask: Ask) -> None:
    """Open sessions until one is taken; the server's closing of the refused ones is the clock."""
    for _ in range(2000):
        if json.loads(ask(served.socket(), STATE))["type"] == "state":
            return
    raise AssertionError("the slot was never freed")


def test_a_socket_dropped_between_calls_closes_the_environment_once(
    serve: Callable[..., Any], ask: Ask, events: Events
) -> None:
    served = serve(create_app(_environment(events), Action, Observation))
    connection = served.socket()
    ask(connection, STATE)
    connection.close()
    assert events.closed.acquire(timeout=30)
    _wait_until_free(served, ask)
    assert events.calls == ["close"]


def test_a_socket_dropped_during_a_sync_step_frees_the_slot_when_the_step_returns(
    serve: Callable[..., Any], events: Events
) -> None:
    served = serve(create_app(_environment(events), Action, Observation))
    connection = served.socket()
    connection.send(STEP)
    assert events.stepping.wait(30)
    connection.close()
    assert json.loads(served.socket().recv(timeout=30))["data"]["code"] == "CAPACITY_REACHED"
    assert events.calls == []
    events.go_on.set()
    assert events.closed.acquire(timeout=30)
    assert events.calls == ["step returned", "close"]


def test_a_socket_dropped_during_an_async_step_cancels_it(serve: Callable[..., Any], ask: Ask, events: Events) -> None:
    class Waiting(_environment(events)):  # type: ignore[misc]
        async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
            events.stepping.set()
            try:
                await anyio.sleep_forever()
            finally:
                events.calls.append("cancelled")

    served = serve(create_app(Waiting, Action, Observation))
    connection = served.socket()
    connection.send(STEP)
    assert events.stepping.wait(30)
    connection.close()
    assert events.closed.acquire(timeout=30)
    assert events.calls == ["cancelled", "close"]


def test_a_socket_dropped_while_its_environment_is_built_closes_that_environment(
    serve: Callable[..., Any], ask: Ask, events: Events
) -> None:
    watched = _environment(events)

    def build() -> Environment[Action, Observation, State]:
        events.building.set()
        events.go_on.wait(30)
        return watched()

    served = serve(create_app(build, Action, Observation))
    connection = served.socket()
    assert events.building.wait(30)
    connection.close()
    events.go_on.set()
    assert events.closed.acquire(timeout=30)
    _wait_until_free(served, ask)


def test_a_close_that_raises_still_frees_the_slot(serve: Callable[..., Any], ask: Ask, events: Events) -> None:
    class Stubborn(_environment(events)):  # type: ignore[misc]
        def close(self) -> None:
            events.calls.append("close")
            raise OSError("stuck")

    served = serve(create_app(Stubborn, Action, Observation))
    connection = served.socket()
    connection.send('{"type":"close"}')
    with pytest.raises(Exception, match="1000"):
        connection.recv(timeout=30)
    assert json.loads(ask(served.socket(), STATE))["type"] == "state"
    assert events.calls == ["close"]


def test_a_closed_socket_means_a_free_slot(serve: Callable[..., Any], ask: Ask, events: Events) -> None:
    served = serve(create_app(_environment(events), Action, Observation))
    for _ in range(20):
        connection = served.socket()
        assert json.loads(ask(connection, STATE))["type"] == "state"
        connection.send('{"type":"close"}')
        with pytest.raises(Exception, match="1000"):
            connection.recv(timeout=30)
    assert events.calls == ["close"] * 20


def test_a_stopping_server_closes_the_environments(serve: Callable[..., Any], ask: Ask, events: Events) -> None:
    served = serve(create_app(_environment(events), Action, Observation))
    ask(served.socket(), STATE)
    served.uvicorn_server.should_exit = True
    assert events.closed.acquire(timeout=30)
