"""Several workers on one port: a request is answered by the worker that it names, whichever accepted it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect


class Server:
    """A process that serves ``worker_app`` with two workers."""

    def __init__(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        command = [sys.executable, "-m", "openenv_trl.server", "worker_app:app", "--workers", "2"]
        self.process = subprocess.Popen(
            [*command, "--fd", str(listening.fileno())],
            pass_fds=[listening.fileno()],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        listening.close()
        assert self.process.stderr is not None
        assert "with 2 workers" in self.process.stderr.readline()

    def post(self, query: str = "", headers: dict[str, str] | None = None, **content: Any) -> tuple[Any, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", f"/mcp{query}", json.dumps(content), headers or {})
        response = connection.getresponse()
        assert response.status == 207
        answer = json.loads(response.read())
        connection.close()
        return answer, response.headers

    def worker_that_answers(self, query: str) -> int | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", f"/mcp{query}", b"{}")
        response = connection.getresponse()
        return json.loads(response.read())["worker"] if response.status == 207 else None

    def socket(self, query: str = "") -> Any:
        return connect(f"ws://127.0.0.1:{self.port}/ws{query}", open_timeout=30, close_timeout=1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.communicate(timeout=30)


@pytest.mark.parametrize("worker", [0, 1])
def test_a_request_is_answered_by_the_worker_that_its_session_names(server: Server, worker: int) -> None:
    name = f"some-session-w{worker}"
    for _ in range(6):
        for query, headers, content in (
            (f"?session_id={name}&more=1", {}, {}),
            ("", {"Mcp-Session-Id": f"0123~w{worker}"}, {}),
            ("", {}, {"method": "tools/call", "params": {"session_id": name, "filler": "x" * 300_000}}),
        ):
            answer, response_headers = server.post(query, headers, **content)
            assert answer["worker"] == worker
            assert answer["length"] == len(json.dumps(content))
            assert answer["client"] == "127.0.0.1"
            assert answer["query"] == query[1:]
            assert response_headers["x-kept"] == "yes"
            assert [len(response_headers.get_all(name)) for name in ("date", "server", "content-length")] == [1, 1, 1]


@pytest.mark.parametrize("worker", [0, 1])
def test_a_websocket_is_handed_to_the_worker_that_it_names(server: Server, worker: int) -> None:
    for query in (f"?session_id=some-session-w{worker}", f"?worker={worker}") * 5:
        with server.socket(query) as connection:
            facts = json.loads(connection.recv(timeout=30))
            assert facts["worker"] == worker
            assert tuple(facts["client"]) == connection.local_address
            connection.send("x" * 300_000)
            assert connection.recv(timeout=30) == "x" * 300_000


def test_websockets_that_name_nothing_are_spread_evenly(server: Server) -> None:
    workers: list[int] = []
    for _ in range(10):
        with server.socket() as connection:
            workers.append(json.loads(connection.recv(timeout=30))["worker"])
    assert sorted(workers) == [0] * 5 + [1] * 5


def test_sessions_that_begin_over_http_are_spread_evenly(server: Server) -> None:
    answers = [server.post(method="openenv/session/create")[0] for _ in range(10)]
    assert sorted(answer["worker"] for answer in answers) == [0] * 5 + [1] * 5


def test_the_id_of_an_mcp_session_leads_back_to_its_worker(server: Server) -> None:
    begun, headers = server.post(method="initialize")
    session_id = headers["mcp-session-id"]
    for _ in range(6):
        answer, _ = server.post("", {"mcp-session-id": session_id}, method="ping")
        assert answer["worker"] == begun["worker"]
        assert answer["header"] == "0123456789abcdef"  # the application's own name for it


@pytest.mark.parametrize("worker", [0, 1])
def test_a_stream_of_events_passes_as_it_comes_and_ends_when_its_reader_leaves(server: Server, worker: int) -> None:
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(4)]
    for connection in connections:
        connection.request("GET", f"/events?worker={worker}")
        response = connection.getresponse()
        assert [response.readline() for _ in range(4)] == [f"data: {worker}\n".encode(), b"\n"] * 2
        response.close()
        connection.close()
    assert server.process.stdout is not None
    for _ in connections:
        assert server.process.stdout.readline() == f"stream of worker {worker} ended\n"


def test_a_head_is_answered_without_a_body(server: Server) -> None:
    for worker in (0, 1):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("HEAD", f"/mcp?worker={worker}")
        response = connection.getresponse()
        assert (response.status, response.read()) == (405, b"")


def test_a_worker_that_dies_is_started_again_and_no_sibling_notices(server: Server) -> None:
    with server.socket("?worker=0") as dying, server.socket("?worker=1") as living:
        dying.recv(timeout=30), living.recv(timeout=30)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/die?worker=0")
        assert _status(connection) in (None, 502)  # lost by this worker itself, or by the one that forwards to it
        with pytest.raises(Exception, match="close"):
            dying.recv(timeout=30)
        living.send("still here")
        assert living.recv(timeout=30) == "still here"
    deadline = time.monotonic() + 60
    while server.worker_that_answers("?worker=0") != 0:
        assert time.monotonic() < deadline
    with server.socket("?worker=0") as connection:
        assert json.loads(connection.recv(timeout=30))["worker"] == 0


def _status(connection: http.client.HTTPConnection) -> int | None:
    try:
        return connection.getresponse().status
    except (ConnectionError, http.client.HTTPException):
        return None


def test_requests_on_one_kept_connection_each_go_to_their_worker(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for worker in (0, 1) * 5:
        connection.request("POST", f"/mcp?worker={worker}", b"{}")
        assert json.loads(connection.getresponse().read())["worker"] == worker
    connection.close()
