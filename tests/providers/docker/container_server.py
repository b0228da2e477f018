"""What the test images run: a server of the standard library that misbehaves as asked, and tells how it is confined."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

OPTIONS = sys.argv[1:]


def _connect(address: str) -> str:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=2):
        return "connected"


def _eat(_: str) -> str:
    eaten = []
    while True:
        eaten.append(b"x" * 1_000_000)


def _write(path: str) -> str:
    with open(path, "w") as file:
        file.write("x")
    return "written"


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _flood(_: str) -> str:
    def write() -> None:
        while True:
            os.write(1, b"\n" * 100_000)

    threading.Thread(target=write, daemon=True).start()
    return "flooding"


def _exit(code: str) -> str:
    print("the dealer has left", flush=True)
    os._exit(int(code))


ANSWERS = {
    "connect": _connect,
    "eat": _eat,
    "exit": _exit,
    "flood": _flood,
    "read": _read,
    "resolve": socket.gethostbyname,
    "variable": lambda name: os.environ.get(name, ""),
    "who": lambda _: f"{os.getuid()}:{os.getgid()}",
    "write": _write,
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        _, what, argument = [*self.path.split("/", 2), "", ""][:3]
        status, text = 200, "ok"
        if what == "health":
            status = 503 if "--never-ready" in OPTIONS else 200
        else:
            try:
                text = ANSWERS[what](unquote(argument))
            except OSError as error:
                text = f"{type(error).__name__}: {error}"
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


print("the cards are shuffled", flush=True)
if "--crash" in OPTIONS:
    print("no such deck", file=sys.stderr, flush=True)
    sys.exit(3)
if "--ignore-term" in OPTIONS:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
