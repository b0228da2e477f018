"""Serve Gymnasium environments from one process, each at an address of its own: prints the addresses as JSON.

Usage: ``python serve_all.py NAME...``. It ends when its input does.
"""

from __future__ import annotations

import json
import socket
import sys
import threading

import uvicorn

from openenv_trl.gymnasium import gymnasium_app
from openenv_trl.server.serving import ServerSettings, uvicorn_config

addresses: dict[str, str] = {}
for name in sys.argv[1:]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_config(gymnasium_app(name), ServerSettings()))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    addresses[name] = f"http://127.0.0.1:{listening.getsockname()[1]}"
print(json.dumps(addresses), flush=True)
sys.stdin.read()
