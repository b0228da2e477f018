"""What a client is told when something goes wrong, and that its session goes on where it can."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedOK

from openenv_trl.environment import Environment
from openenv_trl.errors import ActionValidationError, SessionCapacityError
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State

Ask = Callable[[Any, str], str]
STATE = '{"type":"state"}'


class Trouble(Action):
    kind: str


class Picture(Observation):
    pixels: Any = None


class Troubled(Environment[Trouble, Picture, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Picture:
        return Picture()

    def step(self, action: Trouble, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self.steps += 1
        if action.kind == "stop":
            return next(iter(()))
        if action.kind == "silent":
            raise KeyError
        if action.kind == "refuse":
            raise ActionValidationError("a rook cannot jump")
        if action.kind == "full":
            raise SessionCapacityError(7, 7)
        if action.kind == "none":
            return None
        if action.kind == "object":
            return Picture(pixels=object())
        if action.kind == "array":
            return Picture(pixels=_array())
        return Picture(reward=float(action.kind))

    @property
    def state(self) -> State:
        return State(step_count=self.steps)


class SingleThreaded(Troubled):
    REQUIRES_SINGLE_THREAD_EXECUTOR = True


class Stateless(Troubled):
    @property
    def state(self) -> Any:
        return {"a": 1}


def _array() -> Any:
    numpy = pytest.importorskip("numpy")
    return numpy.arange(3)


def _step(kind: str) -> str:
    return json.dumps({"type": "step", "data": {"kind": kind}})


@pytest.fixture
def connection(serve: Callable[..., Any]) -> Iterator[Any]:
    return serve(create_app(Troubled, Trouble, Picture)).socket()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("stop", "StopIteration"),
        ("silent", "KeyError"),
        ("full", "Server at capacity: 7/7 sessions active."),
        ("none", "step of Troubled returned a NoneType, not an Observation"),
        (
            "object",
            "The step was taken, but its result cannot be sent: observation.pixels: an object of type object",
        ),
    ],
)
def test_what_an_environment_does_wrong_is_its_own_fault_and_ends_nothing(
    connection: Any, ask: Ask, kind: str, message: str
) -> None:
    answer = json.loads(ask(connection, _step(kind)))
    assert answer["type"] == "error"
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    assert message in answer["data"]["message"]
    assert json.loads(ask(connection, STATE))["data"]["step_count"] == 1


def test_a_stop_iteration_in_a_single_thread_does_not_hang_the_session(serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(SingleThreaded, Trouble, Picture)).socket()
    assert "StopIteration" in ask(connection, _step("stop"))


def test_an_action_that_the_environment_refuses_is_the_clients_fault(connection: Any, ask: Ask) -> None:
    answer = json.loads(ask(connection, _step("refuse")))["data"]
    assert (answer["code"], answer["message"]) == ("VALIDATION_ERROR", "a rook cannot jump")


def test_arrays_in_an_observation_are_sent_as_lists(connection: Any, ask: Ask) -> None:
    assert json.loads(ask(connection, _step("array")))["data"]["observation"]["pixels"] == [0, 1, 2]


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
def test_a_reward_that_json_has_not_is_null_and_in_the_log(
    connection: Any, ask: Ask, reward: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "openenv_trl.server"):
        assert json.loads(ask(connection, _step(reward)))["data"]["reward"] is None
    assert f"the reward is {reward}" in caplog.text


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
def test_a_reward_that_json_has_not_is_told_to_the_client(connection: Any, ask: Ask, reward: str) -> None:
    assert json.loads(ask(connection, _step(reward)))["data"]["metadata"]["reward_not_finite"] == reward


def test_a_state_that_is_no_state_is_told(serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(Stateless, Trouble, Picture)).socket()
    answer = json.loads(ask(connection, STATE))["data"]
    assert (answer["code"], answer["message"]) == ("EXECUTION_ERROR", "state of Stateless is a dict, not a State")


def test_an_environments_traceback_is_in_the_log(connection: Any, ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "openenv_trl.server"):
        ask(connection, _step("silent"))
    assert "raise KeyError" in caplog.text


def test_a_dropped_reset_argument_is_in_the_log_once(
    connection: Any, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "openenv_trl.server"):
        for _ in range(3):
            ask(connection, '{"type":"reset","data":{"seed":1,"sede":2}}')
    assert caplog.text.count("'sede'") == 1
    assert "'seed'" not in caplog.text


def test_a_full_server_refuses_with_one_frame_and_takes_the_next_after_a_release(
    serve: Callable[..., Any], ask: Ask
) -> None:
    served = serve(create_app(Troubled, Trouble, Picture, max_concurrent_envs=1))
    first, second = served.socket(), served.socket()
    assert second.recv(timeout=30) == (
        '{"type":"error","data":{"message":"Server at capacity: 1/1 sessions active. Cannot accept new connections.",'
        '"code":"CAPACITY_REACHED","active_sessions":1,"max_sessions":1}}'
    )
    with pytest.raises(ConnectionClosedOK) as closed:
        second.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000
    assert json.loads(ask(first, STATE))["type"] == "state"
    first.send('{"type":"close"}')
    with pytest.raises(ConnectionClosedOK):
        first.recv(timeout=30)
    assert json.loads(ask(served.socket(), STATE))["type"] == "state"


def test_a_failed_factory_gives_its_slot_back(serve: Callable[..., Any], ask: Ask) -> None:
    failures = [OSError("no such game"), None]

    def build() -> Troubled:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return Troubled()

    served = serve(create_app(build, Trouble, Picture))
    answer = json.loads(served.socket().recv(timeout=30))["data"]
    assert answer == {
        "message": "Environment factory 'build' failed to create instance.",
        "code": "FACTORY_ERROR",
        "factory_name": "build",
    }
    assert json.loads(ask(served.socket(), STATE))["type"] == "state"


def test_sessions_see_nothing_of_each_other(serve: Callable[..., Any], ask: Ask) -> None:
    served = serve(create_app(Troubled, Trouble, Picture, max_concurrent_envs=3))
    first, second, third = served.socket(), served.socket(), served.socket()
    for connection, steps in ((first, 3), (second, 1)):
        for _ in range(steps):
            ask(connection, _step("1"))
    ask(third, _step("silent"))
    counts = [json.loads(ask(each, STATE))["data"]["step_count"] for each in (first, second, third)]
    assert counts == [3, 1, 1]


def test_a_message_of_many_megabytes_is_taken(serve: Callable[..., Any], ask: Ask) -> None:
    connection = serve(create_app(Troubled, Trouble, Picture)).socket()
    answer = json.loads(ask(connection, _step("1" + " " * 20_000_000)))["data"]
    assert answer["reward"] == 1.0
