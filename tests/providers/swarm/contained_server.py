"""A server for containers: standard library only, answers GET /health, and ends or grows when it is asked to."""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

grown: list[bytearray] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/exit/"):
            print("asked to end", flush=True)
            os._exit(int(self.path.rpartition("/")[2]))
        if self.path == "/grow":
            while True:
                grown.append(bytearray(os.urandom(1 << 20)))
        ready = "never-ready" not in sys.argv
        about = {"environment": dict(os.environ), "user": os.getuid(), "arguments": sys.argv[1:]}
        body = json.dumps(about).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


print(f"serving, told {sys.argv[1:]}", flush=True)
if "crash" in sys.argv:
    sys.exit("cannot find the cards")
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
ThreadingHTTPServer(("", 8000), Handler).serve_forever()
