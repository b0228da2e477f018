"""The client's socket with real peers, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from websockets.sync.server import ServerConnection

from openenv_trl.client import handshake, message_socket
from openenv_trl.client.address import server_address
from openenv_trl.client.message_socket import MessageSocket, SocketClosed, SocketSettings
from openenv_trl.client.proxies import proxy_for
from openenv_trl.client.transport import open_message_socket, open_socket
from openenv_trl.errors import ConfigurationError, ConnectionFailedError

pytestmark = pytest.mark.anyio
Scripted = Callable[..., str]
Raw = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return "asyncio", {"use_uvloop": request.param}


def _settings(**changes: Any) -> SocketSettings:
    settings = {
        "connect_timeout_s": 30.0,
        "max_message_bytes": 100_000,
        "ping_interval_s": 20.0,
        "ping_timeout_s": 20.0,
        "headers": None,
        **changes,
    }
    return SocketSettings(**settings)


class Ear:
    """What a socket's callbacks were told."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bool]] = []
        self.end = ""
        self.ended = anyio.Event()

    def message(self, message: bytes, text: bool) -> None:
        assert not self.end, "the end is the last call"
        self.messages.append((message, text))

    def closed(self, how: str) -> None:
        assert not self.end, "the end comes once"
        self.end = how
        self.ended.set()

    async def open(self, url: str, **changes: Any) -> MessageSocket:
        return await open_message_socket(server_address(url), _settings(**changes), self.message, self.closed)

    async def how_it_ends(self) -> str:
        with anyio.fail_after(60):
            await self.ended.wait()
        return self.end


@pytest.fixture
def raw() -> Iterator[Raw]:
    """Run a handler for the one connection of a server that is a plain TCP socket."""
    with ExitStack() as stack:

        def start(handler: Callable[[socket.socket], None]) -> str:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                with contextlib.suppress(OSError):
                    accepted, _ = listening.accept()
                    with accepted:
                        accepted.settimeout(20)
                        handler(accepted)

            threading.Thread(target=run, daemon=True).start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield start


def _shake_hands(peer: socket.socket) -> None:
    request = b""
    while b"\r\n\r\n" not in request:
        request += peer.recv(4096)
    key = next(line[18:].strip() for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    peer.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


def _read_frame_kind(peer: socket.socket) -> int:
    """Read a short masked frame and return its kind."""
    first, second = peer.recv(1), peer.recv(1)
    if not second:
        raise ConnectionResetError
    for _ in range(4 + (second[0] & 0x7F)):
        peer.recv(1)
    return first[0] & 0x0F


async def test_messages_come_whole_in_order_and_as_what_they_were_sent(scripted: Scripted) -> None:
    def play(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)
        assert connection.close_code == 1000

    ear = Ear()
    connection = await ear.open(scripted(play))
    sent = [(b"one", True), (b"", True), ("zwei ü".encode(), True), (b"\xff\x00", False), (b"x" * 70_000, False)]
    for message, text in sent:
        connection.send(message, text=text)
    with anyio.fail_after(60):
        while len(ear.messages) < len(sent):
            await anyio.lowlevel.checkpoint()
    assert ear.messages == sent
    connection.close()
    assert not connection.is_open
    assert await ear.how_it_ends() == "this client closed it"
    with pytest.raises(SocketClosed, match="this client closed it"):
        connection.send(b"", text=True)


async def test_fragments_come_together_as_one_message(scripted: Scripted) -> None:
    def play(connection: ServerConnection) -> None:
        connection.send(["frag", "", "ments"])
        connection.send([b"\x00", b"\xff"])
        connection.ping()
        connection.send("whole")

    ear = Ear()
    await ear.open(scripted(play))
    assert await ear.how_it_ends() == "the server closed it"
    assert ear.messages == [(b"fragments", True), (b"\x00\xff", False), (b"whole", True)]


@pytest.mark.parametrize("message", ["x" * 200_000, ["x" * 60_000] * 3])
async def test_a_message_beyond_the_limit_ends_the_socket_and_names_the_setting(
    scripted: Scripted, message: Any
) -> None:
    def play(connection: ServerConnection) -> None:
        connection.send("first")
        connection.send(message)
        connection.recv()

    ear = Ear()
    await ear.open(scripted(play))
    assert "longer than max_message_size_mb allows" in await ear.how_it_ends()
    assert ear.messages == [(b"first", True)]


async def test_a_peer_that_breaks_the_framing_is_told_from_a_broken_connection(raw: Raw) -> None:
    def play(peer: socket.socket) -> None:
        _shake_hands(peer)
        peer.sendall(b"\x80\x01x")  # goes on with a message that never began
        peer.recv(100)

    ear = Ear()
    await ear.open(raw(play))
    assert "the server broke the WebSocket protocol (its fragments are out of order)" in await ear.how_it_ends()


async def test_a_peer_that_answers_pings_is_kept_and_one_that_stops_is_given_up(raw: Raw) -> None:
    asked: list[int] = []

    def play(peer: socket.socket) -> None:
        _shake_hands(peer)
        while True:
            asked.append(_read_frame_kind(peer))
            if len(asked) <= 3:
                peer.sendall(b"\x8a\x00")

    ear = Ear()
    await ear.open(raw(play), ping_interval_s=0.02, ping_timeout_s=1.0)
    assert await ear.how_it_ends() == "the server did not answer pings"
    # Three answers, and a question without one; the last is asked again by a loop that stood still meanwhile.
    assert len(asked) >= 4
    assert set(asked) == {9}


async def test_a_peer_that_never_closes_is_cut_off(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_socket, "_CLOSE_S", 0.05)
    cut = threading.Event()

    def play(peer: socket.socket) -> None:
        _shake_hands(peer)
        with contextlib.suppress(ConnectionResetError):
            while peer.recv(100):
                pass
        cut.set()

    connection = await open_socket(server_address(raw(play)), _settings())
    with anyio.fail_after(60):
        await connection.close()
    assert await anyio.to_thread.run_sync(lambda: cut.wait(60))


async def test_one_who_sends_learns_that_the_server_does_not_keep_up(raw: Raw) -> None:
    may_read = threading.Event()

    def play(peer: socket.socket) -> None:
        _shake_hands(peer)
        may_read.wait(20)
        while peer.recv(1 << 20):
            pass

    ear = Ear()
    connection = await ear.open(raw(play))
    while not connection.writing_paused:
        connection.send(b"x" * 60_000, text=False)
    may_read.set()
    with anyio.fail_after(60):
        await connection.writable()
    assert not connection.writing_paused
    connection.abort()
    assert await ear.how_it_ends() == "this client cut the connection"


async def test_what_nobody_takes_stalls_the_server_and_loses_nothing(scripted: Scripted) -> None:
    def play(connection: ServerConnection) -> None:
        for number in range(500):
            connection.send(f"{number}")

    connection = await open_socket(server_address(scripted(play)), _settings())
    for number in range(500):
        assert await connection.receive() == f"{number}".encode()
    with pytest.raises(SocketClosed, match="the server closed it"):
        await connection.receive()


async def test_a_deadline_is_the_last_that_was_set(scripted: Scripted) -> None:
    def play(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    connection = await open_socket(server_address(scripted(play)), _settings())
    connection.abort_after(0.01).lift()
    lifted = connection.abort_after(60)
    lifted.lift()
    await connection.send(b"still here")
    assert await connection.receive() == b"still here"
    deadline = connection.abort_after(0.05)
    with pytest.raises(SocketClosed):
        await connection.receive()
    assert deadline.passed
    assert not connection.is_open


async def test_the_server_chooses_what_to_speak(scripted: Scripted) -> None:
    choosing = scripted(lambda connection: None, subprotocols=["b", "a"])
    plain = scripted(lambda connection: None)
    for url, offered, chosen in [(choosing, ("a", "b"), "b"), (choosing, ("a",), "a"), (plain, ("a",), None)]:
        ear = Ear()
        assert (await ear.open(url, subprotocols=offered)).subprotocol == chosen
        await ear.how_it_ends()


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("Sec-WebSocket-Protocol: chat", "'chat', which was not offered"),
        ("Sec-WebSocket-Extensions: permessage-deflate", "extensions that were not offered"),
    ],
)
async def test_what_was_not_offered_cannot_be_chosen(raw: Raw, header: str, words: str) -> None:
    def play(peer: socket.socket) -> None:
        answer = b""

        class Catch:
            recv = staticmethod(peer.recv)

            @staticmethod
            def sendall(data: bytes) -> None:
                nonlocal answer
                answer = data

        _shake_hands(Catch())  # type: ignore
        peer.sendall(answer.replace(b"\r\n\r\n", f"\r\n{header}\r\n\r\n".encode()))
        peer.recv(100)

    ear = Ear()
    with pytest.raises(ConnectionFailedError, match=words):
        await ear.open(raw(play))
    assert not ear.end


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.0 401 Unauthorized\r\n\r\n", "status 401: pass the headers"),
        (
            b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 27\r\n\r\n{"detail":"Bring a token."}',
            r"status 401: Bring a token\. .*pass the headers",
        ),
        (
            b'HTTP/1.1 403 Forbidden\r\nContent-Length: 26\r\n\r\n{"detail":"Agents do not."}',
            r"refused the connection with HTTP status 403: Agents do not\.$",
        ),
        (b"HTTP/1.1 520 Web Server Returned an Unknown Error\r\n\r\n", r"\(HTTP status 520\)"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "answered, but not with a WebSocket"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "scheme isn't ws or wss"),
    ],
)
async def test_an_answer_that_is_no_handshake_is_told(raw: Raw, answer: bytes, words: str) -> None:
    def play(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(answer)
        peer.recv(100)

    with pytest.raises((ConnectionFailedError, ConfigurationError), match=words):
        await Ear().open(raw(play))


async def test_a_handshake_that_nobody_waits_for_any_more_leaves_no_connection(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_LEFT_ALONE_S", 0.05)
    left = threading.Event()

    def play(peer: socket.socket) -> None:
        while peer.recv(4096):
            pass
        left.set()

    with pytest.raises(ConnectionFailedError, match=r"within 0\.1 s"):
        await Ear().open(raw(play), connect_timeout_s=0.1)
    assert await anyio.to_thread.run_sync(lambda: left.wait(60))


async def test_headers_and_the_password_in_an_address_are_sent(scripted: Scripted) -> None:
    seen: list[Any] = []

    def play(connection: ServerConnection) -> None:
        assert connection.request
        seen.append(connection.request.headers)

    url = scripted(play).replace("127.0.0.1", "user:p%40ss@127.0.0.1")
    ear = Ear()
    await ear.open(url, headers={"X-Word": "7"})
    await ear.how_it_ends()
    assert seen[0]["X-Word"] == "7"
    assert seen[0]["Authorization"] == f"Basic {base64.b64encode(b'user:p@ss').decode()}"
    assert "@" not in seen[0]["Host"]


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X\n": "a"}, {"X": 5}])
async def test_a_header_that_cannot_be_sent_is_told_at_once(headers: Any) -> None:
    with pytest.raises(ConfigurationError, match="header"):
        await Ear().open("127.0.0.1:1", headers=headers)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    file = tmp_path / "certificate.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run([*command.split(), "-keyout", file, "-out", tmp_path / "cert"], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + (tmp_path / "cert").read_bytes())
    return file


async def test_a_secure_server_is_trusted_only_for_its_certificate(
    scripted: Scripted, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    url = scripted(lambda connection: connection.send("x" * 90_000), ssl=context)
    url = url.replace("http://127.0.0.1", "https://localhost")
    with pytest.raises(ConnectionFailedError, match=r"Cannot connect to wss://.*certificate"):
        await Ear().open(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    ear = Ear()
    await ear.open(url)
    assert await ear.how_it_ends() == "the server closed it"
    assert ear.messages == [(b"x" * 90_000, True)]


class _Tunnel(http.server.BaseHTTPRequestHandler):
    """A proxy that leads every tunnel to one place, or refuses."""

    asked: list[tuple[str, str | None]]
    leads_to: tuple[str, int] | None

    def do_CONNECT(self) -> None:
        self.asked.append((self.path, self.headers.get("Proxy-Authorization")))
        if self.leads_to is None:
            self.send_error(403)
            return
        with socket.create_connection(self.leads_to) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=self._pump, args=(there, self.connection), daemon=True)
            back.start()
            self._pump(self.connection, there)
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def log_message(self, *_: Any) -> None:
        pass


async def test_a_server_elsewhere_is_reached_through_the_proxy_of_the_environment(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(scripted(lambda connection: connection.send("through")).rpartition(":")[2])
    handler = type("Tunnel", (_Tunnel,), {"asked": [], "leads_to": ("127.0.0.1", port)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{proxy.server_port}")
        for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        connection = await open_socket(server_address("http://games.invalid"), _settings())
        assert await connection.receive() == b"through"
        await connection.close()
        assert handler.asked == [("games.invalid:80", f"Basic {base64.b64encode(b'user:word').decode()}")]
        handler.leads_to = None
        with pytest.raises(ConnectionFailedError, match=r"through the proxy http://127\.0\.0\.1:\d+: .*403") as caught:
            await open_socket(server_address("http://games.invalid"), _settings())
        assert "word" not in str(caught.value)
        proxy.shutdown()


def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(url: str, **variables: str) -> str | None:
        with monkeypatch.context() as patch:
            for name in ("http", "https", "ws", "wss", "socks", "all", "no"):
                patch.delenv(f"{name}_proxy", raising=False)
                patch.delenv(f"{name}_proxy".upper(), raising=False)
            for name, value in variables.items():
                patch.setenv(name, value)
            return proxy_for(server_address(url))

    assert chosen("http://a.example") is None
    assert chosen("http://a.example", http_proxy="http://p:1") == "http://p:1"
    assert chosen("https://a.example", http_proxy="http://p:1") is None
    assert chosen("https://a.example", https_proxy="p:2") == "http://p:2"
    assert chosen("https://a.example", HTTPS_PROXY="http://p:2", socks_proxy="socks5h://s:3") == "socks5://s:3"
    assert chosen("http://a.example", all_proxy="socks://s:3") == "socks5://s:3"
    assert chosen("http://a.example", http_proxy="http://p:1", no_proxy="b.example, .example") is None
    assert chosen("http://a.example:81", http_proxy="http://p:1", no_proxy="a.example:80") == "http://p:1"
    assert chosen("http://localhost:1", http_proxy="http://p:1") is None
    with pytest.raises(ConfigurationError, match=r"quic://.*list a\.example in no_proxy"):
        chosen("http://a.example", http_proxy="quic://user:secret@p:1")
