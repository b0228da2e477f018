"""Serve applications from one process with this Python's package, each at an address of its own: prints the addresses.

Usage: ``python serve.py FOLDER``: the environments of the suite, and the packages in that folder.
"""

from __future__ import annotations

import importlib
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

try:
    from openenv_trl.server.serving import ServerSettings, uvicorn_config
except ImportError:

    def config(app: Any) -> uvicorn.Config:
        return uvicorn.Config(app, log_level="warning")

else:

    def config(app: Any) -> uvicorn.Config:
        return uvicorn_config(app, ServerSettings())


def applications(folder: Path) -> dict[str, Any]:
    sys.path[:0] = [str(Path(__file__).parent), str(folder)]
    own = {name: build() for name, build in importlib.import_module("environments").APPS.items()}
    packages = sorted(path.parent.name for path in folder.glob("*/openenv.yaml"))
    return own | {name: importlib.import_module(f"{name}.server.app").app for name in packages}


def main() -> None:
    addresses: dict[str, str] = {}
    for name, app in applications(Path(sys.argv[1])).items():
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        server = uvicorn.Server(config(app))
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        addresses[name] = f"http://127.0.0.1:{listening.getsockname()[1]}"
    print(json.dumps(addresses), flush=True)
    sys.stdin.read()  # until whoever started this is gone


main()
