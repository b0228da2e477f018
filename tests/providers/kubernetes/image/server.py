"""A server for pods, of the standard library alone: it answers GET /health, tells what it may, and misbehaves if asked.

It has a lease as this package's own servers have one: it ends when nobody posts to /lease for OPENENV_TRL_LEASE_S.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--crash", action="store_true")
parser.add_argument("--never-ready", action="store_true")
parser.add_argument("--say", default="")
options = parser.parse_args()

LEASE_S = float(os.environ.get("OPENENV_TRL_LEASE_S", "0"))
TOKEN = os.environ.get("OPENENV_TRL_LEASE_TOKEN", "")
renewed = time.monotonic()
hung = False


def writable(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "probe"), "w") as file:
            file.write("x")
    except OSError:
        return False
    return True


def facts() -> dict[str, object]:
    with open("/proc/self/status") as file:
        status = dict(line.rstrip().split(":\t", 1) for line in file if ":\t" in line)
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "capabilities": int(status["CapEff"], 16),
        "no_new_privileges": status["NoNewPrivs"] == "1",
        "seccomp": status["Seccomp"],
        "root_writable": writable("/"),
        "tmp_writable": writable("/tmp"),
        "token_mounted": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        "variables": dict(os.environ),
        "arguments": sys.argv[1:],
        "host": socket.gethostname(),
    }


def leave(code: int) -> None:
    sys.stdout.flush()
    os._exit(code)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        global hung
        if self.path == "/hang":
            hung = True
        if self.path == "/health":
            while hung:
                time.sleep(1)
            return self.answer(b"ok", 503 if options.never_ready else 200)
        if self.path == "/facts":
            return self.answer(json.dumps(facts()).encode())
        if self.path.startswith("/exit/"):
            print("told to end", flush=True)
            leave(int(self.path.rpartition("/")[2]))
        if self.path == "/eat":
            print("eating memory", flush=True)
            eaten = []
            while True:
                eaten.append(bytearray(os.urandom(1024)) * 4096)
        return self.answer(b"?", 404 if self.path != "/hang" else 200)

    def do_POST(self) -> None:
        global renewed
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/lease":
            allowed = self.headers.get("x-openenv-lease") == TOKEN
            renewed = time.monotonic() if allowed else renewed
            return self.answer(b"", 204 if allowed else 403)
        return self.answer(body)

    def log_message(self, format: str, *args: object) -> None:
        if "/health" not in str(args[0]):
            print(format % args, flush=True)


def keep_lease() -> None:
    while time.monotonic() - renewed < LEASE_S:
        time.sleep(0.1)
    print("nobody has renewed the lease", flush=True)
    leave(0)


class Server(ThreadingHTTPServer):
    request_queue_size = 64


print(options.say or "starting", flush=True)
if options.crash:
    print("about to divide", flush=True)
    print(1 / 0)
# Nothing else ends what has the process id 1.
signal.signal(signal.SIGTERM, lambda *_: leave(0))
if LEASE_S:
    threading.Thread(target=keep_lease, daemon=True).start()
Server(("", options.port), Handler).serve_forever()
