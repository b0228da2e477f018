"""A server in a process of its own, watched from outside: its memory, its log, and whether it serves others."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from websockets.sync.client import connect

HERE = Path(__file__).parent
LIMIT = 1_000_000
"""The longest message that the server under test takes."""
KEPT_MIB = 24.0
"""What a server may keep of one case: buffers and caches, no more than a few messages of the longest kind."""
PEAK_MIB = 64.0
"""What a case may cost for a moment."""
QUICKLY_S = 5.0
"""For another session to open, reset and step: on idle cores it takes milliseconds."""


class ServerProcess:
    """``python -m openenv_trl.server`` on the game."""

    def __init__(
        self, log: Path, *, settings: dict[str, str], command: list[str] | None = None, carrier: str = "own"
    ) -> None:
        self.carrier = carrier
        listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port: int = listening.getsockname()[1]
        self._log = log
        fd = str(listening.fileno())
        command = command or [sys.executable, "-m", "openenv_trl.server", "hostile_game:app", "--fd", "{fd}"]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [part.replace("{fd}", fd) for part in command],
                pass_fds=[listening.fileno()],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=HERE,
                env={**os.environ, **settings},
            )
        listening.close()
        self.serves_others()
        self.forget_peak()
        self.rest_mib = self.memory_mib()

    def serves_others(self) -> None:
        """Fail unless a new session works, quickly."""
        began = time.monotonic()
        with connect(f"ws://127.0.0.1:{self.port}/ws", compression=None, open_timeout=30, close_timeout=2) as other:
            for request, answer in (
                ('{"type":"reset"}', '"ready"'),
                ('{"type":"step","data":{"text":"all well"}}', '"all well"'),
            ):
                other.send(request)
                assert answer in str(other.recv(timeout=30))
        self.answered_in_s = time.monotonic() - began

    def is_well_after(self, before_mib: float, tracebacks: int) -> None:
        """Fail unless others are served quickly, every slot is free, and memory and log are as they were."""
        assert self.process.poll() is None, self.log()
        until = time.monotonic() + 60
        while self.active_sessions() and time.monotonic() < until:
            time.sleep(0.02)
        assert self.active_sessions() == 0, "a slot is lost"
        self.serves_others()
        assert self.answered_in_s < QUICKLY_S
        assert self.memory_mib() - before_mib < KEPT_MIB, "memory is kept"
        assert self.peak_mib() - before_mib < PEAK_MIB, "memory was not bounded"
        assert self.tracebacks()[tracebacks:] == []

    def active_sessions(self) -> int:
        """Slots that are taken now."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as asking:
            asking.sendall(b"GET /capacity HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while chunk := asking.recv(65_536):
                answer += chunk
        return json.loads(answer.partition(b"\r\n\r\n")[2])["active_sessions"]

    def memory_mib(self) -> float:
        """What the process holds now."""
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """The most that it held since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Begin to watch anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def tracebacks(self) -> list[str]:
        """The last lines of the tracebacks in its log."""
        return re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(.*)", self.log())

    def stop(self) -> None:
        """End it, and fail unless it ends by itself."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        finally:
            self.process.kill()

    def _status(self, field: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise LookupError(field)
