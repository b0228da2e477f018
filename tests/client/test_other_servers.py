"""What a client makes of no server, of a server that is no OpenEnv server, and of one that breaks off."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from websockets.sync.server import ServerConnection

from openenv_trl.client import GenericEnvClient, fetch_health, fetch_metadata, fetch_schema
from openenv_trl.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    ProtocolError,
    SessionCapacityError,
    SessionLostError,
    SessionNotFoundError,
)

pytestmark = pytest.mark.anyio
Scripted = Callable[[Callable[[ServerConnection], None]], str]

NO_PING = (
    '{"type":"mcp","data":{"jsonrpc":"2.0","id":"connect",'
    '"error":{"code":-32601,"message":"Method not found: ping","data":null}}}'
)
FULL = '{"type":"error","data":{"message":"Server at capacity: 4/4 sessions active.","code":"CAPACITY_REACHED"}}'
UNKNOWN = '{"type":"error","data":{"message":"Unknown message type: mcp","code":"UNKNOWN_TYPE"}}'
STATE = '{"type":"state","data":{"step_count":0}}'


@pytest.fixture
def unused() -> Iterator[str]:
    """An address where nobody listens, kept from everybody else meanwhile."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{silent.getsockname()[1]}"


@pytest.fixture
def web_page() -> Iterator[str]:
    class Page(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            page = b"<html>Welcome</html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def guarded() -> Iterator[str]:
    """A server behind a proxy that answers 401 to a request without its header."""

    class Guard(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answers = {
                "/health": b'{"status":"healthy"}',
                "/metadata": b'{"name":"n","description":"d"}',
                "/schema": b'{"action":{},"observation":{},"state":{}}',
            }
            allowed = self.headers.get("Authorization") == "Bearer word"
            answer = answers.get(self.path, b"") if allowed else b"who are you?"
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def deaf() -> Iterator[str]:
    """A socket that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_no_server_is_a_connection_error_that_names_the_address(unused: str) -> None:
    env = GenericEnvClient(unused)
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match=f"Cannot connect to ws://{unused}/ws: .*Check") as caught:
            await env.connect()
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.retryable


async def test_an_unknown_host_is_a_connection_error() -> None:
    with pytest.raises(ConnectionFailedError, match=r"ws://no\.such\.host\.invalid/ws"):
        await GenericEnvClient("http://no.such.host.invalid").connect()


async def test_a_server_that_says_nothing_is_given_up(deaf: str) -> None:
    with pytest.raises(ConnectionFailedError, match=r"within 0\.2 s"):
        await GenericEnvClient(deaf, connect_timeout_s=0.2).connect()


async def test_a_server_that_hangs_up_is_not_taken_for_another_kind_of_server() -> None:
    def hang_up(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        accepted.recv(1)
        accepted.shutdown(socket.SHUT_WR)
        accepted.recv(65536)
        accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=hang_up, args=(listening,), daemon=True).start()
        with pytest.raises(ConnectionFailedError, match="closed it without an answer"):
            await GenericEnvClient(f"127.0.0.1:{listening.getsockname()[1]}").connect()


async def test_a_web_page_is_told_from_a_server(web_page: str) -> None:
    with pytest.raises(ConnectionFailedError, match=r"HTTP status 200.*there is no OpenEnv server at this address"):
        await GenericEnvClient(web_page).connect()


async def test_a_server_elsewhere_is_told_from_this_address(parrot: str) -> None:
    with pytest.raises(ConnectionFailedError, match=r"HTTP status 403"):
        await GenericEnvClient(f"{parrot}/games").connect()


async def test_a_refusal_that_came_before_the_first_message_is_read(scripted: Scripted) -> None:
    def refuse(connection: ServerConnection) -> None:
        connection.send(FULL)
        connection.close()

    with pytest.raises(SessionCapacityError) as caught:
        await GenericEnvClient(scripted(refuse)).connect()
    assert (caught.value.active_sessions, caught.value.max_sessions) == (4, 4)


async def test_a_server_that_closes_without_a_word_is_a_connection_error(scripted: Scripted) -> None:
    with pytest.raises(ConnectionFailedError, match="opened no session: the server closed it"):
        await GenericEnvClient(scripted(lambda connection: connection.close())).connect()


async def test_an_environment_that_is_not_ready_in_time_is_a_deadline(scripted: Scripted) -> None:
    def silent(connection: ServerConnection) -> None:
        connection.recv()
        connection.recv()

    url = scripted(silent)
    with pytest.raises(DeadlineExceededError, match=r"no environment ready within 0\.2 s"):
        await GenericEnvClient(url, message_timeout_s=0.2).connect()


async def test_a_server_that_knows_no_mcp_message_is_a_server_without_tools(scripted: Scripted) -> None:
    def old(connection: ServerConnection) -> None:
        for text in connection:
            if "close" in str(text):
                return
            connection.send(UNKNOWN if '"mcp"' in str(text) else STATE)

    async with GenericEnvClient(scripted(old)) as env:
        assert await env.list_tools() == []
        assert await env.state() == {"step_count": 0}


async def test_a_server_that_fails_to_list_tools_does_not_pass_for_one_without(scripted: Scripted) -> None:
    def failing(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(NO_PING)
        connection.recv()
        connection.send('{"type":"mcp","data":{"id":1,"error":{"code":-32603,"message":"the list burned"}}}')
        connection.recv()

    async with GenericEnvClient(scripted(failing)) as env:
        with pytest.raises(EnvironmentExecutionError, match="the list burned"):
            await env.list_tools()


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ("hello", ProtocolError, "not JSON"),
        ('{"hello":1}', ProtocolError, "not one of the OpenEnv protocol"),
        (STATE, ProtocolError, "answered step with a message of type 'state'"),
        ('{"type":"error","data":{"message":"\'text\'","code":"SESSION_ERROR"}}', SessionLostError, "'text'"),
        (
            '{"type":"error","data":{"message":"Unknown session_id: 7","code":"SESSION_ERROR"}}',
            SessionNotFoundError,
            "Unknown session_id: 7",
        ),
        (FULL, SessionCapacityError, "4/4"),
    ],
)
async def test_an_answer_that_ends_the_session_ends_it_for_good(
    scripted: Scripted, answer: str, kind: type[Exception], text: str
) -> None:
    def play(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(NO_PING)
        connection.recv()
        connection.send(answer)
        connection.recv()

    env = await GenericEnvClient(scripted(play)).connect()
    with pytest.raises(kind, match=text):
        await env.step({})
    with pytest.raises(SessionLostError, match="Connect a new client and begin a new episode"):
        await env.step({})
    await env.close()


@pytest.mark.parametrize(
    ("code", "text"),
    [(1000, "the server closed it"), (1012, "the server is shutting down"), (4000, "closed it with code 4000")],
)
async def test_a_server_that_breaks_off_is_a_lost_session(scripted: Scripted, code: int, text: str) -> None:
    def play(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(NO_PING)
        connection.recv()
        connection.close(code)

    env = await GenericEnvClient(scripted(play)).connect()
    with pytest.raises(SessionLostError, match=text):
        await env.reset()
    with pytest.raises(SessionLostError, match=text):
        await env.reset()
    await env.close()


async def test_a_broken_connection_is_a_lost_session(scripted: Scripted) -> None:
    def play(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(NO_PING)
        connection.recv()
        connection.socket.shutdown(socket.SHUT_RDWR)

    env = await GenericEnvClient(scripted(play)).connect()
    with pytest.raises(SessionLostError, match="the connection broke"):
        await env.reset()
    await env.close()


async def test_an_answer_that_is_too_long_tells_what_to_raise(scripted: Scripted) -> None:
    def play(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(NO_PING)
        connection.recv()
        connection.send("x" * 200_000)
        connection.recv()

    env = await GenericEnvClient(scripted(play), max_message_size_mb=0.1).connect()
    with pytest.raises(SessionLostError, match="longer than max_message_size_mb allows"):
        await env.reset()
    await env.close()


async def test_a_server_tells_of_itself(parrot: str) -> None:
    assert await fetch_health(parrot) == {"status": "healthy"}
    assert (await fetch_metadata(parrot))["name"] == "Parrot"
    schema = await fetch_schema(parrot.replace("http", "ws") + "/ws")
    assert set(schema["action"]["properties"]) == {"metadata", "text", "raises", "waits"}


@pytest.mark.parametrize("fetch", [fetch_health, fetch_metadata, fetch_schema])
async def test_what_tells_nothing_of_itself_is_told(fetch: Any, web_page: str, unused: str, deaf: str) -> None:
    with pytest.raises(ProtocolError, match=r"status 200, but not as an OpenEnv server does: <html>Welcome"):
        await fetch(web_page)
    with pytest.raises(ConnectionFailedError, match=f"Cannot fetch http://{unused}/"):
        await fetch(unused)
    with pytest.raises(DeadlineExceededError, match=r"within 0\.2 s"):
        await fetch(deaf, timeout_s=0.2)


@pytest.mark.parametrize("fetch", [fetch_health, fetch_metadata, fetch_schema])
async def test_headers_are_sent_with_each_inquiry(fetch: Any, guarded: str) -> None:
    assert await fetch(guarded, headers={"Authorization": "Bearer word"})
    with pytest.raises(ConnectionFailedError, match=r"status 401. Set its token .* or pass the headers"):
        await fetch(guarded)


async def test_a_session_that_needs_headers_says_so(guarded: str) -> None:
    with pytest.raises(ConnectionFailedError, match=r"status 401: pass the headers"):
        await GenericEnvClient(guarded).connect()


async def test_a_client_knows_that_its_connection_ended_while_nobody_called(scripted: Scripted) -> None:
    may_end = threading.Event()

    def leave(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(NO_PING)
        may_end.wait(30)

    env = GenericEnvClient(scripted(leave))
    assert not env.is_open
    await env.connect()
    assert env.is_open
    may_end.set()
    with anyio.fail_after(60):
        while env.is_open:
            await anyio.lowlevel.checkpoint()
    await env.close()
    assert not env.is_open
