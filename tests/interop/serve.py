"""Serve every environment of the suite from one process, with this Python's package: prints their addresses."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

sys.path.insert(0, str(Path(__file__).parent))
from environments import APPS

try:
    from openenv_trl.server.serving import ServerSettings, uvicorn_config
except ImportError:

    def config(app: Any) -> uvicorn.Config:
        return uvicorn.Config(app, log_level="warning")

else:

    def config(app: Any) -> uvicorn.Config:
        return uvicorn_config(app, ServerSettings())


def main() -> None:
    addresses: dict[str, str] = {}
    for name, build in APPS.items():
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        server = uvicorn.Server(config(build()))
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        addresses[name] = f"http://127.0.0.1:{listening.getsockname()[1]}"
    print(json.dumps(addresses), flush=True)
    sys.stdin.read()  # until whoever started this is gone


main()
