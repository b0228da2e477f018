"""Which worker a request belongs to, and when a dead worker is started again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from openenv_trl.server.workers.affinity import Affinity
from openenv_trl.server.workers.joining import started_by_uvicorn_with_workers
from openenv_trl.server.workers.memory import SharedMemory, Standing, size_of
from openenv_trl.server.workers.parent import RestartPlan
from openenv_trl.server.workers.place import VARIABLE, WorkerPlace, take_place


@pytest.fixture
def affinity() -> Iterator[Affinity]:
    with tempfile.TemporaryFile() as file:
        file.truncate(size_of(3))
        memory = SharedMemory(file.fileno(), 3)
        for worker in range(3):
            memory.set_standing(worker, Standing.UP)
        yield Affinity(WorkerPlace(1, 3, "tests", file.fileno(), 0, 0), memory)


def test_a_sessions_id_tells_its_worker(affinity: Affinity) -> None:
    session_id = affinity.new_session_id()
    assert affinity.worker_of(session_id) == 1
    assert session_id != affinity.new_session_id()


@pytest.mark.parametrize("name", ["", "a-w", "a-w9", "a-w99999", "a-wx", "w1", "a-w1 ", "a-w1\n", "a-w١", "-w-1"])
def test_an_id_that_no_worker_gave_belongs_to_none(affinity: Affinity, name: str) -> None:
    assert affinity.worker_of(name) is None


@pytest.mark.parametrize(
    ("query", "headers", "owner"),
    [
        ({}, {}, None),
        ({"session_id": "a-w2"}, {}, 2),
        ({"session_id": "a-w1"}, {}, None),  # here
        ({"session_id": "foreign", "worker": "2"}, {}, None),
        ({"worker": "0"}, {}, 0),
        ({"worker": "7"}, {}, None),
        ({"worker": "1" * 5000}, {}, None),
        ({}, {"mcp-session-id": "0123abc~w2"}, 2),
    ],
)
def test_a_request_belongs_to_the_worker_that_it_names(
    affinity: Affinity, query: dict[str, str], headers: dict[str, str], owner: int | None
) -> None:
    assert affinity.owner("/ws", query, headers) == owner


def test_what_names_a_worker_that_is_gone_is_answered_here(affinity: Affinity) -> None:
    affinity.memory.forget(2)
    assert affinity.owner("/ws", {"session_id": "a-w2"}, {}) is None


def test_sockets_that_name_nothing_go_round(affinity: Affinity) -> None:
    assert [affinity.owner_of_socket({}, {}) for _ in range(4)] == [0, None, 2, 0]


def test_a_place_is_taken_once_so_that_no_child_process_takes_it_too(affinity: Affinity) -> None:
    environment = dict(affinity.place.variable())
    assert take_place(environment) == affinity.place
    assert VARIABLE not in environment
    assert take_place(environment) is None


def test_a_worker_that_dies_again_and_again_is_started_ever_more_slowly() -> None:
    plan = RestartPlan(first_s=0.1, longest_s=1.0, good_run_s=10.0)
    assert [round(plan.pause_s(0.5), 3) for _ in range(5)] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert plan.pause_s(60.0) == 0.1


@pytest.mark.parametrize(
    ("command", "environment", "expected"),
    [
        ("uvicorn game:app", {}, False),
        ("/usr/bin/uvicorn game:app --workers 4", {}, True),
        ("/lib/uvicorn/__main__.py game:app --workers=4 --port 80", {}, True),
        ("uvicorn game:app --workers 1", {"WEB_CONCURRENCY": "4"}, False),
        ("uvicorn game:app", {"WEB_CONCURRENCY": "4"}, True),
        ("uvicorn game:app --workers", {}, False),
        ("/usr/bin/pytest --workers 4", {"WEB_CONCURRENCY": "4"}, False),
        ("", {}, False),
    ],
)
def test_workers_of_uvicorn_itself_are_recognised(command: str, environment: dict[str, str], expected: bool) -> None:
    assert started_by_uvicorn_with_workers(command.split(), environment) is expected
