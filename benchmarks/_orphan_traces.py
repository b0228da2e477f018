"""What is left of owners, as the engine and the kernel themselves tell it: nothing of this package is asked.

Processes carry a mark in their environment, whoever started them. What is on the engine carries its owner's label.
Linux only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

MARK = "ORPHANS_MARK"
LABEL = "openenv-trl.owner"
_PAUSE_S = 0.25


class Process(NamedTuple):
    """A living process."""

    pid: int
    is_reaper: bool
    """Whether it is an owner's reaper, or what that becomes; both end by themselves."""


class _EngineConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


class Traces:
    """All that owners have, looked at again and again by a thread.

    Args:
        docker_socket: The engine's socket; None where no engine is looked at.
    """

    def __init__(self, docker_socket: Path | None) -> None:
        self._socket = docker_socket
        self._changed = threading.Condition()
        self._looks = 0
        self._things: dict[str, list[str]] = {}
        self._processes: dict[str, list[Process]] = {}
        self.volumes: list[str] = []
        """Every volume of the engine, also one without a label."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look for the length of a block."""
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                self._look()
                over.wait(_PAUSE_S)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def of(self, owner: str, mark: str) -> tuple[list[str], list[Process]]:
        """The owner's things on the engine and its processes, in a look that begins after this call."""
        with self._changed:
            wanted = self._looks + 2  # the one under way may have begun before
            self._changed.wait_for(lambda: self._looks >= wanted)
            return list(self._things.get(owner, ())), list(self._processes.get(mark, ()))

    def everything(self) -> list[str]:
        """All that carries any owner's label."""
        with self._changed:
            return [thing for things in self._things.values() for thing in things]

    def _look(self) -> None:
        processes = marked_processes()
        things: dict[str, list[str]] = defaultdict(list)
        volumes: list[str] = []
        if self._socket is not None:
            for each in self._ask("services"):
                things[each["Spec"]["Labels"].get(LABEL, "?")].append(f"service {each['Spec']['Name']}")
            for each in self._ask("containers/json?all=true"):
                things[each["Labels"].get(LABEL, "?")].append(f"container {each['Names'][0]} {each['State']}")
            for each in self._ask("networks"):
                if LABEL in (each.get("Labels") or {}):
                    things[each["Labels"][LABEL]].append(f"network {each['Name']}")
            for each in self._ask("volumes")["Volumes"] or ():
                volumes.append(each["Name"])
                if LABEL in (each.get("Labels") or {}):
                    things[each["Labels"][LABEL]].append(f"volume {each['Name']}")
        with self._changed:
            self._looks += 1
            self._things, self._processes, self.volumes = things, processes, volumes
            self._changed.notify_all()

    def _ask(self, path: str) -> Any:
        while True:
            connection = _EngineConnection(str(self._socket))
            try:
                connection.request("GET", f"/{quote(path, safe='/?=')}")
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == 200:
                    return json.loads(body)
            except (OSError, http.client.HTTPException):
                time.sleep(_PAUSE_S)
            finally:
                connection.close()


def marked_processes() -> dict[str, list[Process]]:
    """The living processes that carry a mark, by mark."""
    found: dict[str, list[Process]] = defaultdict(list)
    head = f"{MARK}=".encode()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            # Both are empty for a process that has ended and is not collected yet.
            environment = Path(f"/proc/{entry}/environ").read_bytes()
            command = Path(f"/proc/{entry}/cmdline").read_bytes() if head in environment else b""
        except OSError:
            continue
        for variable in environment.split(b"\0") if command else ():
            if variable.startswith(head):
                mark = variable[len(head) :].decode()
                found[mark].append(Process(int(entry), b"/providers/ownership/" in command))
    return found
