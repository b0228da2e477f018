"""Trajectories to score, and a judge's endpoint: a real HTTP server in a thread, that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from openenv_trl.rollout import EndReason, Task, Trajectory, Turn


@pytest.fixture
def make() -> Callable[..., Trajectory]:
    """A trajectory with one turn of these step rewards, and further empty turns."""

    def make(
        end_reason: EndReason = EndReason.DONE,
        rewards: Any = (1.0,),
        *,
        problems: int = 0,
        turns: int = 1,
        said: str = "Hello.",
        **fields: Any,
    ) -> Trajectory:
        played = Turn(
            rewards=list(rewards),
            problems=["bad"] * problems,
            actions=[{"move": index} for index in range(len(rewards))],
            observations=[f"saw {index}" for index in range(len(rewards))],
            done=end_reason is EndReason.DONE,
        )
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": said}]
        task = Task([{"role": "user", "content": "x"}])
        all_turns = [played, *[Turn() for _ in range(turns - 1)]]
        return Trajectory(task, [1], [2], [1], None, all_turns, end_reason, messages=messages, **fields)

    return make


@pytest.fixture
def score() -> Callable[..., list[float | None]]:
    """Calls a reward function as TRL does."""

    def score(function: Any, *trajectories: Trajectory, **more: Any) -> list[float | None]:
        count = len(trajectories)
        return function(
            prompts=["p"] * count,
            completions=["c"] * count,
            completion_ids=[[2]] * count,
            trajectory=list(trajectories),
            **more,
        )

    return score


class JudgeEndpoint:
    """What the judge is asked, and what it answers: a function of the request's number and body."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[int, dict[str, Any]], str | int] = lambda number, body: '{"polite": 10}'
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        judge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with judge._lock:
                    judge.requests.append(body)
                    judge.headers.append(dict(self.headers))
                    number = len(judge.requests) - 1
                    judge._now += 1
                    judge.most_at_once = max(judge.most_at_once, judge._now)
                try:
                    said = judge.answer(number, body)
                finally:
                    with judge._lock:
                        judge._now -= 1
                status = said if isinstance(said, int) else 200
                message = {"role": "assistant", "content": said}
                data = json.dumps({"choices": [{"message": message}]} if status == 200 else {"error": "no"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def judge_endpoint() -> Iterator[JudgeEndpoint]:
    endpoint = JudgeEndpoint()
    thread = threading.Thread(target=endpoint.server.serve_forever, daemon=True)
    thread.start()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()
    thread.join()
