"""The tasks that an environment offers, over HTTP: by methods of either kind, and never on the event loop."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from openenv_trl.environment import Environment
from openenv_trl.server import create_app
from openenv_trl.types import Action, Observation, State

TASKS = ["a", "b", "c"]


class Split(BaseModel):
    name: str
    size: int


class Plain(Environment[Action, Observation, State]):
    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Observation:
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return State()


class Offering(Plain):
    thread: Any = None

    def list_splits(self) -> list[Any]:
        return ["train", "hard", {"name": "own", "type": "mine"}, Split(name="model", size=3), 7]

    def list_tasks(self, split: str) -> list[Any]:
        type(self).thread = threading.current_thread()
        return [{"split": split, "task": each} for each in TASKS]

    def num_tasks(self, split: str) -> int:
        if split == "secret":
            raise NotImplementedError
        if split == "broken":
            raise OSError("the disk is gone")
        return len(TASKS)

    async def get_task(self, split: str, index: int) -> Any:
        return TASKS[index]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        return TASKS[start:stop]


def _ask(served: Any, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{served.url}{path}", data=data, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture
def served(serve: Callable[..., Any]) -> Any:
    return serve(create_app(Offering, Action, Observation, env_name="Offering"))


@pytest.mark.parametrize("name", ["Offering", "offering"])
def test_splits_have_a_name_and_a_type(served: Any, name: str) -> None:
    splits = [
        {"name": "train", "type": "train"},
        {"name": "hard", "type": "validation"},
        {"name": "own", "type": "mine"},
        {"name": "model", "size": 3},
        {"name": "7", "type": "validation"},
    ]
    assert _ask(served, f"/{name}/splits") == (200, splits)


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("num_tasks", {"split": "train"}, {"num_tasks": 3}),
        ("task", {"split": "train", "index": 1}, {"task": "b"}),
        ("task_range", {"split": "train", "start": 1}, {"tasks": ["b", "c"]}),
        ("task_range", {"split": "train", "start": 0, "stop": 1}, {"tasks": ["a"]}),
        ("task_range", {"split": "train"}, {"tasks": TASKS}),
    ],
)
def test_tasks_are_counted_and_given_out(served: Any, path: str, body: Any, answer: Any) -> None:
    assert _ask(served, f"/offering/{path}", body) == (200, answer)


def test_all_tasks_come_with_the_environments_name_and_from_a_thread_of_their_own(served: Any) -> None:
    tasks = [{"split": "train", "task": each} for each in TASKS]
    assert _ask(served, "/offering/tasks", {"split": "train"}) == (200, {"tasks": tasks, "env_name": "Offering"})
    assert Offering.thread is not None
    assert not Offering.thread.name.startswith("Thread-")  # the server's own loop runs in one of that name


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        ("/other/num_tasks", {"split": "train"}, 404, "unknown environment 'other'"),
        ("/other/splits", None, 404, "unknown environment 'other'"),
        ("/offering/num_tasks", {"split": "secret"}, 501, "num_tasks is not supported for this environment"),
        ("/offering/num_tasks", {"split": "broken"}, 500, "the disk is gone"),
        ("/offering/task", {"split": "train", "index": 9}, 400, "Invalid task index"),
    ],
)
def test_what_cannot_be_given_is_said(served: Any, path: str, body: Any, status: int, detail: str) -> None:
    assert _ask(served, path, body) == (status, {"detail": detail})


@pytest.mark.parametrize(
    ("path", "body", "loc"),
    [
        ("num_tasks", {}, ["body", "split"]),
        ("task", {"split": "train"}, ["body", "index"]),
        ("task_range", {"split": "train", "begin": 1}, ["body", "begin"]),
    ],
)
def test_a_wrong_body_is_answered_field_by_field(served: Any, path: str, body: Any, loc: list[str]) -> None:
    status, answer = _ask(served, f"/offering/{path}", body)
    assert (status, [each["loc"] for each in answer["detail"]]) == (422, [loc])


@pytest.mark.parametrize("method", ["splits", "tasks"])
def test_an_environment_without_tasks_does_not_support_them(serve: Callable[..., Any], method: str) -> None:
    served = serve(create_app(Plain, Action, Observation))
    body = {"split": "train"} if method == "tasks" else None
    status, answer = _ask(served, f"/plain/{method}", body)
    assert (status, answer) == (501, {"detail": f"list_{method} is not supported for this environment"})
