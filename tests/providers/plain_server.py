"""A server that is not ours: standard library only, answers GET /health, and can misbehave in every way asked for."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/exit/"):
            os._exit(int(self.path.rpartition("/")[2]))
        healthy = self.path == "/health" and not options.never_ready
        self.send_response(200 if healthy else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


def become_daemon() -> None:
    """Leaves a process behind that forked twice, in a session of its own."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    os.wait()
    print(f"pid {int(os.read(read, 32))} daemon", flush=True)


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "0")))
parser.add_argument("--fd", type=int)
parser.add_argument("--crash", action="store_true")
parser.add_argument("--never-ready", action="store_true")
parser.add_argument("--ignore-term", action="store_true")
parser.add_argument("--grandchild", action="store_true")
parser.add_argument("--daemon", action="store_true")
parser.add_argument("--no-reuse", action="store_true")
parser.add_argument("--say", default="")
options = parser.parse_args()

print(f"pid {os.getpid()} server", flush=True)
if options.say:
    print(options.say, flush=True)
if options.crash:
    print("about to divide", file=sys.stderr, flush=True)
    print(1 / 0)
if options.ignore_term:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.grandchild:
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"pid {grandchild.pid} grandchild", flush=True)
if options.daemon:
    become_daemon()

ThreadingHTTPServer.allow_reuse_address = not options.no_reuse
server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler, bind_and_activate=options.fd is None)
if options.fd is not None:
    server.socket.close()
    server.socket = socket.socket(fileno=options.fd)
server.serve_forever()
