"""An engine of the tests' own, whose replicas are child processes: for what holds of every engine's provider."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.abc import Process
from pydantic import Field

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers import Replica, ServerSpec
from openenv_trl.providers.engine_provider import EngineProvider
from openenv_trl.providers.ports import PortReservation

SERVER = Path(__file__).parent / "plain_server.py"


class ChildSpec(ServerSpec, frozen=True):
    type: Literal["child"] = "child"
    options: list[list[str]] = Field(default_factory=lambda: [[]])
    """Options of the first server, the second, ...; the last ones also of those that follow."""


class ChildEngine(EngineProvider[ChildSpec]):
    """Runs servers as children. What an engine does wrong, a test has it do."""

    SPEC = ChildSpec

    def __init__(self, spec: ChildSpec | None = None, **observers: Any) -> None:
        super().__init__(spec, **observers)
        self.pids: list[int] = []
        """Of every server that was ever started."""
        self.connections: list[str] = []
        """``open`` and ``closed``, in order."""
        self.threads: set[int] = set()
        """The threads that the engine was used from."""
        self.refuse_connection = False
        self.refuse_removal: set[str] = set()
        self.before_launch: Callable[[str], Any] = lambda name: None
        self._launches = 0
        self._children: dict[str, Process] = {}
        self._ports: dict[str, PortReservation] = {}

    async def _connect(self) -> None:
        self.threads.add(threading.get_ident())
        self.connections.append("open")
        if self.refuse_connection:
            raise ProviderError("the engine is away")

    async def _disconnect(self) -> None:
        self.connections.append("closed")

    async def _launch(self, name: str) -> Replica:
        self.threads.add(threading.get_ident())
        self.before_launch(name)
        number, self._launches = self._launches, self._launches + 1
        options = self.spec.options[min(number, len(self.spec.options) - 1)]
        if "--refuse" in options:
            raise ServerStartError(f"the engine refuses {name}")
        reserved = PortReservation("127.0.0.1")
        command = [sys.executable, str(SERVER), "--port", str(reserved.port), *options]
        with anyio.CancelScope(shield=True):
            child = await anyio.open_process(command, stdout=None, stderr=None)
            self.pids.append(child.pid)
            self._children[name] = child
            self._ports[name] = reserved
            await self._spawn(self._watch_child, name, child)
        return Replica(f"http://127.0.0.1:{reserved.port}", name, str(child.pid))

    async def _watch_child(self, name: str, child: Process) -> None:
        code = await child.wait()
        self._note_exit(name, code, f"{name} says goodbye")

    async def _remove(self, replica: Replica) -> None:
        child = self._children.pop(replica.name, None)
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.wait()
        self._ports.pop(replica.name).close()
        if replica.name in self.refuse_removal:
            raise ProviderError(f"{replica.name} would not go")

    async def _is_alive(self, replica: Replica) -> bool:
        return replica.name in self._children and self._children[replica.name].returncode is None

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        return "line one\nline two"

    def kill(self, replica: Replica) -> None:
        os.kill(int(replica.id), signal.SIGKILL)

    @property
    def living(self) -> list[int]:
        """The servers that have not been reaped."""
        return [pid for pid in self.pids if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
