"""The HTTP routes that control an environment: bodies and statuses recorded against the public package 0.10.0.

Where ours differs it is by design: an environment's failure is JSON that says whose it is; a step's deadline is kept.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pydantic
import pytest
from pydantic import Field

from openenv_trl.environment import Environment
from openenv_trl.errors import ActionValidationError
from openenv_trl.server import create_app
from openenv_trl.server.settings import AppSettings
from openenv_trl.types import Action, Observation, State

URL = f"https://errors.pydantic.dev/{'.'.join(pydantic.VERSION.split('.')[:2])}/v/"


class ProbeAction(Action):
    message: str = Field(min_length=1)
    n: int = 0


class ProbeObservation(Observation):
    echoed: str = ""
    n: int = 0
    any: Any = None


class Probe(Environment[ProbeAction, ProbeObservation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    alive = 0
    most_alive = 0
    lock = threading.Lock()
    released = threading.Event()

    def __init__(self) -> None:
        with self.lock:
            type(self).alive += 1
            type(self).most_alive = max(self.most_alive, self.alive)

    def reset(self, seed: Any = None, episode_id: str | None = None, level: int = 0) -> ProbeObservation:
        if level < 0:
            raise RuntimeError("no such level")
        return ProbeObservation(echoed=f"ready seed={seed} level={level}")

    def step(self, action: ProbeAction, timeout_s: float | None = None, **kw: Any) -> ProbeObservation:
        message = action.message
        if message == "boom":
            raise ValueError("kaboom")
        if message == "valerr":
            ProbeAction(message="")
        if message == "illegal":
            raise ActionValidationError("That square is taken.")
        if message == "wait":
            self.released.wait(30)
        if message == "object":
            return ProbeObservation(any=object())
        reward = {"nan": float("nan"), "true": True}.get(message, 1.5)
        metadata = {"k": 1, "kw": kw, "timeout_s": timeout_s} if message == "meta" else {}
        return ProbeObservation(echoed=message, n=action.n, reward=reward, metadata=metadata)

    @property
    def state(self) -> State:
        return State(episode_id="init")

    def close(self) -> None:
        with self.lock:
            type(self).alive -= 1


class BadFactory(Probe):
    def __init__(self) -> None:
        raise OSError("no such game")


def _ask(served: Any, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(f"{served.url}{path}", data=body, method=method)
    if body is not None:
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def _post(served: Any, path: str, body: Any) -> tuple[int, Any]:
    return _ask(served, "POST", path, json.dumps(body).encode())


@pytest.fixture
def served(serve: Callable[..., Any]) -> Any:
    return serve(create_app(Probe, ProbeAction, ProbeObservation))


def _reply(echoed: str, reward: Any = None, metadata: Any = None, **more: Any) -> dict[str, Any]:
    observation = {"metadata": metadata or {}, "echoed": echoed, "n": 0, "any": None}
    return {"observation": observation, "reward": reward, "done": False, "metadata": metadata, **more}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", _reply("ready seed=None level=0")),
        (b"{}", _reply("ready seed=None level=0")),
        (b'{"seed":3,"episode_id":"e1","level":4,"unknown":1}', _reply("ready seed=3 level=4")),
        (b'{"seed":null}', _reply("ready seed=None level=0")),
    ],
)
def test_a_reset_shows_the_first_observation(served: Any, body: bytes, expected: Any) -> None:
    assert _ask(served, "POST", "/reset", body) == (200, expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"action": {"message": "hi"}}, _reply("hi", 1.5)),
        (
            {"action": {"message": "meta"}, "timeout_s": 30, "request_id": "r1", "extra": "7"},
            _reply("meta", 1.5, {"k": 1, "kw": {"request_id": "r1", "extra": "7"}, "timeout_s": 30.0}),
        ),
        ({"action": {"message": "true"}}, _reply("true", 1.0)),
    ],
)
def test_a_step_is_taken_with_what_it_takes(served: Any, body: Any, expected: Any) -> None:
    assert _post(served, "/step", body) == (200, expected)


def test_a_reward_that_json_has_not_is_null_and_told(served: Any) -> None:
    _, answer = _post(served, "/step", {"action": {"message": "nan"}})
    assert (answer["reward"], answer["metadata"]) == (None, {"reward_not_finite": "nan"})


def test_the_state_is_that_of_a_new_environment(served: Any) -> None:
    assert _ask(served, "GET", "/state") == (200, {"episode_id": "init", "step_count": 0})


def _error(kind: str, loc: list[Any], msg: str, sent: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "loc": loc, "msg": msg, "input": sent, **more}


NO_OBJECT = "Input should be a valid dictionary or object to extract fields from"


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        (
            "/reset",
            b'{"seed":-1}',
            _error(
                "greater_than_equal",
                ["body", "seed"],
                "Input should be greater than or equal to 0",
                -1,
                ctx={"ge": 0},
            ),
        ),
        (
            "/reset",
            b'{"seed":"x"}',
            _error(
                "int_parsing",
                ["body", "seed"],
                "Input should be a valid integer, unable to parse string as an integer",
                "x",
            ),
        ),
        (
            "/reset",
            b"{bad",
            _error(
                "json_invalid",
                ["body", 1],
                "JSON decode error",
                {},
                ctx={"error": "Expecting property name enclosed in double quotes"},
            ),
        ),
        ("/reset", b"[]", _error("model_attributes_type", ["body"], NO_OBJECT, [])),
        ("/reset", b"null", _error("model_attributes_type", ["body"], NO_OBJECT, None)),
        ("/step", b'{"message":"hi"}', _error("missing", ["body", "action"], "Field required", {"message": "hi"})),
        ("/step", b"", _error("missing", ["body"], "Field required", None)),
        (
            "/step",
            b'{"action":{"message":"hi"},"timeout_s":0}',
            _error("greater_than", ["body", "timeout_s"], "Input should be greater than 0", 0, ctx={"gt": 0.0}),
        ),
        (
            "/step",
            b'{"action":"hi"}',
            _error("dict_type", ["body", "action"], "Input should be a valid dictionary", "hi"),
        ),
        (
            "/step",
            b'{"action":{"message":""}}',
            _error(
                "string_too_short",
                ["message"],
                "String should have at least 1 character",
                "",
                ctx={"min_length": 1},
                url=f"{URL}string_too_short",
            ),
        ),
        (
            "/step",
            b'{"action":{"message":"a","zzz":1}}',
            _error("extra_forbidden", ["zzz"], "Extra inputs are not permitted", 1, url=f"{URL}extra_forbidden"),
        ),
    ],
)
def test_a_wrong_body_is_answered_field_by_field(served: Any, path: str, body: bytes, error: Any) -> None:
    assert _ask(served, "POST", path, body) == (422, {"detail": [error]})


def test_a_tool_call_is_no_action_of_an_environment_without_tools(served: Any) -> None:
    status, answer = _post(served, "/step", {"action": {"type": "call_tool", "tool_name": "add", "arguments": {}}})
    assert status == 422
    assert [each["loc"] for each in answer["detail"]] == [["message"], ["type"], ["tool_name"], ["arguments"]]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/step", {"action": {"message": "boom"}}, "kaboom"),
        ("/step", {"action": {"message": "valerr"}}, "1 validation error for ProbeAction"),
        ("/step", {"action": {"message": "object"}}, "The step was taken, but its result cannot be sent as JSON"),
        ("/reset", {"level": -1}, "no such level"),
    ],
)
def test_what_the_environment_fails_in_is_its_fault_and_said_in_json(
    served: Any, path: str, body: Any, text: str
) -> None:
    status, answer = _post(served, path, body)
    assert status == 500
    assert answer["detail"].startswith(text)


def test_an_environment_may_say_that_an_action_is_wrong(served: Any) -> None:
    status, answer = _post(served, "/step", {"action": {"message": "illegal"}})
    assert (status, answer["detail"][0]["msg"]) == (422, "That square is taken.")


@pytest.mark.parametrize(("method", "path"), [("POST", "/reset"), ("GET", "/state")])
def test_a_factory_that_raises_is_said_in_json(serve: Callable[..., Any], method: str, path: str) -> None:
    served = serve(create_app(BadFactory, ProbeAction, ProbeObservation))
    body = b"{}" if method == "POST" else None
    text = "Environment factory 'BadFactory' failed to create instance."
    assert _ask(served, method, path, body) == (500, {"detail": text})


def test_a_step_past_its_deadline_is_answered_at_it(served: Any) -> None:
    Probe.released.clear()
    status, answer = _post(served, "/step", {"action": {"message": "wait"}, "timeout_s": 0.05})
    Probe.released.set()
    assert status == 504
    assert "deadline" in answer["detail"]


def test_a_body_that_is_too_long_is_refused(serve: Callable[..., Any]) -> None:
    settings = AppSettings(max_message_bytes=1024)
    served = serve(create_app(Probe, ProbeAction, ProbeObservation, settings=settings))
    assert _post(served, "/step", {"action": {"message": "x" * 2000}})[0] == 413


def test_environments_of_requests_are_no_more_at_once_than_sessions_and_all_closed(serve: Callable[..., Any]) -> None:
    class Counted(Probe):
        alive = 0
        most_alive = 0

    served = serve(create_app(Counted, ProbeAction, ProbeObservation, max_concurrent_envs=2))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: _post(served, "/reset", {})[0], range(32)))
    assert answers == [200] * 32
    assert (Counted.alive, Counted.most_alive <= 2) == (0, True)


def test_requests_are_answered_beside_a_full_house(serve: Callable[..., Any], ask: Callable[..., str]) -> None:
    served = serve(create_app(Probe, ProbeAction, ProbeObservation))
    ask(served.socket(), '{"type":"reset"}')
    assert _post(served, "/reset", {})[0] == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/reset"), ("POST", "/step"), ("GET", "/state")])
def test_production_has_none_of_these_routes(serve: Callable[..., Any], method: str, path: str) -> None:
    served = serve(create_app(Probe, ProbeAction, ProbeObservation, mode="production"))
    assert _ask(served, method, path, b"{}" if method == "POST" else None) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(("mode", "expected"), [("simulation", {"/reset", "/step", "/state"}), ("production", set())])
def test_the_openapi_page_tells_the_mode(serve: Callable[..., Any], mode: str, expected: set[str]) -> None:
    served = serve(create_app(Probe, ProbeAction, ProbeObservation, mode=mode))
    _, page = _ask(served, "GET", "/openapi.json")
    assert {"/reset", "/step", "/state"} & page["paths"].keys() == expected


@pytest.mark.parametrize("path", ["/step", "/reset", "/mcp"])
def test_another_verb_is_not_allowed(served: Any, path: str) -> None:
    assert _ask(served, "GET", path) == (405, {"detail": "Method Not Allowed"})


def test_the_environments_name_is_listed(serve: Callable[..., Any]) -> None:
    served = serve(create_app(Probe, ProbeAction, ProbeObservation, env_name="p_env"))
    assert _ask(served, "GET", "/list_environments") == (200, ["p_env"])


class Slow(Probe):
    """All of it waits until it is released."""

    released = threading.Event()

    def __init__(self) -> None:
        self.released.wait(30)
        super().__init__()

    def list_tasks(self, split: str) -> list[str]:
        return [split]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/reset", {}),
        ("/step", {"action": {"message": "x"}}),
        ("/state", None),
        ("/slow/tasks", {"split": "train"}),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"}),
    ],
)
def test_a_constructor_that_takes_its_time_keeps_nobody_else_waiting(
    serve: Callable[..., Any], path: str, body: Any
) -> None:
    Slow.released.clear()
    served = serve(create_app(Slow, ProbeAction, ProbeObservation, env_name="slow"))
    method = "GET" if body is None else "POST"
    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(_ask, served, method, path, None if body is None else json.dumps(body).encode())
            assert _ask(served, "GET", "/health") == (200, {"status": "healthy"})
            assert not answer.done()
        finally:
            Slow.released.set()
        assert answer.result(30)[0] == 200
