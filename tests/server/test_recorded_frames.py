"""Frames recorded against the public package 0.10.0, replayed against our server.

``recorded_frames.json`` holds what was sent and what its server answered. Our answer is equal to it byte for byte,
except where the table gives ours, with the reason why it differs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest
from pydantic import Field
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from openenv_trl.environment import Environment
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "recorded_frames.json").read_text())
PYDANTIC = ".".join(pydantic.VERSION.split(".")[:2])


class ProbeAction(Action):
    message: str = Field(min_length=1)
    n: int = 0


class ProbeObservation(Observation):
    echoed: str = ""
    n: int = 0


class ProbeState(State):
    total: int = 0


class Probe(Environment[ProbeAction, ProbeObservation, ProbeState]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self._state = ProbeState(episode_id="init")

    def reset(self, seed: Any = None, episode_id: str | None = None, level: int = 0) -> ProbeObservation:
        self._state = ProbeState(episode_id="ep")
        return ProbeObservation(echoed=f"ready seed={seed} level={level}")

    def step(self, action: ProbeAction, timeout_s: float | None = None, **kw: Any) -> ProbeObservation:
        self._state.step_count += 1
        message = action.message
        if message == "boom":
            raise ValueError("kaboom")
        if message == "valerr":
            ProbeAction(message="")
        if message == "boolreward":
            return ProbeObservation(echoed="b", reward=True, done=True)
        reward = {"nan": float("nan"), "inf": float("inf")}.get(message, 1.5)
        metadata = {"k": 1, "kw": kw, "timeout_s": timeout_s} if message == "meta" else {}
        done = message == "end"
        return ProbeObservation(echoed=message, n=action.n, reward=reward, done=done, metadata=metadata)

    @property
    def state(self) -> ProbeState:
        return self._state


class AsyncProbe(Probe):
    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **kw: Any) -> ProbeObservation:
        self._state = ProbeState(episode_id="aep")
        return ProbeObservation(echoed=f"areset seed={seed} kw={sorted(kw)}")

    async def step_async(self, action: ProbeAction, timeout_s: float | None = None, **kw: Any) -> ProbeObservation:
        self._state.step_count += 1
        self._state.total += 1
        return ProbeObservation(echoed=f"async:{action.message}", reward=2)


class BadFactory(Probe):
    def __init__(self) -> None:
        raise OSError("no such game")


ENVIRONMENTS = {"probe": Probe, "async_probe": AsyncProbe, "bad_factory": BadFactory}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_answers_are_the_recorded_ones(case: dict[str, Any], serve: Callable[..., Any]) -> None:
    app = create_app(ENVIRONMENTS[case["environment"]], ProbeAction, ProbeObservation, state_cls=ProbeState)
    connection = serve(app).socket()
    for exchange in case["exchanges"]:
        expected = exchange.get("ours", exchange["reply"])
        assert _answer(connection, exchange) == _as_sent(expected), exchange


def test_every_difference_has_a_reason() -> None:
    exchanges = [exchange for case in CASES for exchange in case["exchanges"]]
    assert all(bool(each.get("because")) == ("ours" in each) for each in exchanges)
    assert sum("ours" in each for each in exchanges) == 18


def test_a_pipelined_request_is_answered_in_its_turn(serve: Callable[..., Any]) -> None:
    connection = serve(create_app(Probe, ProbeAction, ProbeObservation)).socket()
    for n in range(50):
        connection.send(json.dumps({"type": "step", "data": {"message": "m", "n": n}}))
    answers = [json.loads(connection.recv(timeout=30)) for _ in range(50)]
    assert [answer["data"]["observation"]["n"] for answer in answers] == list(range(50))


def _answer(connection: ClientConnection, exchange: dict[str, Any]) -> str:
    message = json.dumps(exchange["json"]) if "json" in exchange else exchange.get("text")
    with contextlib.suppress(ConnectionClosed):  # refused already; the refusal waits to be read
        connection.send(exchange["binary"].encode("latin-1") if message is None else message)
    try:
        answer = connection.recv(timeout=30)
    except ConnectionClosed as closed:
        return f"CLOSED {closed.rcvd.code if closed.rcvd else closed}"
    assert isinstance(answer, str)
    return answer


def _as_sent(reply: Any) -> str:
    if isinstance(reply, str):
        return reply
    return json.dumps(reply, separators=(",", ":"), ensure_ascii=False).replace("{pydantic}", PYDANTIC)
