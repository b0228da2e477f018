"""The process that runs code: it does what the server's frames ask, one thing at a time, to the session's end.

Everything here may be read, changed and lied about by the code that it runs; the server believes none of it.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
from typing import Any

from . import files, frames, judge, solution
from .console import Console
from .smolagents_console import SmolagentsConsole

_MAX_FRAME = 1 << 26


def work(way: socket.socket, config: dict[str, Any]) -> None:
    """Serve the server at the other end, until it is gone.

    Args:
        way: To the server.
        config: ``packages``: folders that code may import from beside the standard library. ``executor``: what runs
            cells. ``imports``: what smolagents lets them import.
    """
    sys.path[:0] = [os.getcwd(), *config["packages"]]
    console = SmolagentsConsole(config["imports"]) if config["executor"] == "smolagents" else Console()
    signal.signal(signal.SIGINT, console.interrupted)
    unpacker = frames.Unpacker(_MAX_FRAME)
    way.sendall(frames.pack({"ready": True}))
    peer: socket.socket | None = None
    while True:
        data, descriptors, _, _ = socket.recv_fds(way, 1 << 16, 1)
        if not data:
            return
        if descriptors:  # comes with a frame's first byte
            peer = socket.socket(fileno=descriptors[0])
        for message in unpacker.feed(data):
            _answer(way, console, message, peer)
            peer = None


def _answer(way: socket.socket, console: Console, message: dict[str, Any], peer: socket.socket | None) -> None:
    operation, process = message["op"], os.getpid()
    if operation == "run":
        reply: dict[str, Any] = {"exit_code": console.run(message["code"])}
    elif operation == "seed":
        random.seed(message["seed"])
        reply = {}
    elif operation == "hello":
        reply = {}
    elif operation == "solution" and peer is not None:
        solution.serve(peer, message["files"], console)
        os._exit(0)
    elif operation == "judge" and peer is not None:
        judge.judge(way, peer, message)
        reply = {}
    else:
        reply = files.answer(console, message)
    console.flush()
    if os.getpid() != process:  # a fork that came back: the other one answers
        os._exit(0)
    way.sendall(frames.pack({"id": message["id"], **reply}))
