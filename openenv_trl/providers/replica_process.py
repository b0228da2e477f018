"""One server process under its supervisor, seen from the provider: its log, its end, how to make it end.

Nothing here needs an event loop: one thread a process reads its log and learns of its end, so that a server
never blocks on a full pipe while a trainer keeps the loop busy.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

from openenv_trl.errors import ProviderError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_TAIL_LINES = 60
_LONGEST_LINE = 16_384
# How much longer than the grace time the supervisor may take before it is killed itself.
_STOP_MARGIN_S = 12.0


class ReplicaProcess:
    """One run of a server's command. It is running as soon as the object exists.

    Attributes:
        exited: Done when the process and all that it started have ended, with its exit code (negative: the signal).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        passed_fds: Sequence[int],
        grace_s: float,
        on_line: Callable[[str], None],
        on_exit: Callable[[ReplicaProcess, int], None],
    ) -> None:
        self.exited: Future[int] = Future()
        self.server_pid: int | None = None
        self._owner = os.getpid()
        self._grace_s = grace_s
        self._on_line = on_line
        self._on_exit = on_exit
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._exit_code: int | None = None
        self._stop_lock = threading.Lock()
        self._status_fd, status_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(_SUPERVISOR)),
                    *(str(os.getpid()), str(grace_s), str(status_write), ",".join(map(str, passed_fds))),
                    *command,
                ],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(status_write, *passed_fds),
                start_new_session=True,
                env=dict(env),
                cwd=cwd,
            )
        except (OSError, ValueError) as error:  # the latter: a variable or word that no process can be given
            os.close(self._status_fd)
            raise ProviderError(_why_not_spawned(cwd, error), phase="start") from error
        finally:
            os.close(status_write)
        self.supervisor_pid = self._process.pid
        # A daemon: a forgotten provider must not keep its interpreter from ending. The supervisor sees that end.
        self._thread = threading.Thread(target=self._watch, name=f"replica-{self._process.pid}", daemon=True)
        self._thread.start()

    def log_tail(self) -> str:
        """The last lines that the server wrote."""
        return "\n".join(self._tail)

    def ask_to_stop(self) -> None:
        """Tells the supervisor to end the server, and returns at once. May be called again."""
        if self._owner == os.getpid():  # in a forked copy of the provider the servers are not its own
            # A byte, not only the end of the pipe: a forked sibling may hold the pipe open too.
            self._close_lifeline(b"q")

    def wait_stopped(self) -> None:
        """Blocks until the server has ended after ``ask_to_stop``; by force when its supervisor does not answer."""
        if self._owner != os.getpid() or wait([self.exited], self._grace_s + _STOP_MARGIN_S).done:
            return
        self._process.kill()
        wait([self.exited], _STOP_MARGIN_S)

    def _close_lifeline(self, last_word: bytes) -> None:
        pipe = self._process.stdin
        with self._stop_lock, contextlib.suppress(OSError):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.write(last_word)
                finally:
                    pipe.close()

    def _watch(self) -> None:
        """The thread: log lines and status lines, until the supervisor has ended."""
        assert self._process.stdout is not None
        log_fd = self._process.stdout.fileno()
        log, status = b"", b""
        with selectors.DefaultSelector() as selector:
            selector.register(log_fd, selectors.EVENT_READ)
            selector.register(self._status_fd, selectors.EVENT_READ)
            supervised = True
            while supervised:
                for key, _ in selector.select():
                    data = os.read(key.fd, 65_536)
                    if key.fd == log_fd:
                        log = self._take_lines(log + data)
                        if not data:
                            selector.unregister(log_fd)
                    else:
                        status += data
                        self._take_status(status)
                        supervised = bool(data)
        self._process.wait()
        if self._exit_code is None and self.server_pid is not None:
            # The supervisor was killed. The kernel or this ends what it left behind.
            with contextlib.suppress(OSError):
                os.killpg(self.server_pid, signal.SIGKILL)
        self._take_last_lines(log_fd, log)
        self._process.stdout.close()
        os.close(self._status_fd)
        self._close_lifeline(b"")
        code = self._process.returncode if self._exit_code is None else self._exit_code
        self.exited.set_result(code)
        self._on_exit(self, code)

    def _take_status(self, status: bytes) -> None:
        for line in status.decode().splitlines(keepends=True):
            if line.startswith("pid ") and line.endswith("\n"):
                self.server_pid = int(line[4:])
            elif line.startswith("exit ") and line.endswith("\n"):
                self._exit_code = int(line[5:])

    def _take_lines(self, data: bytes) -> bytes:
        """Passes on every whole line; returns the rest."""
        *lines, rest = data.split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            self._tail.append(text[:_LONGEST_LINE])
            self._on_line(text)
        return rest

    def _take_last_lines(self, log_fd: int, log: bytes) -> None:
        """What is still in the pipe, without waiting for a writer that may live on."""
        os.set_blocking(log_fd, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(log_fd, 65_536):
                log = self._take_lines(log + data)
        if log:
            self._take_lines(log + b"\n")


def _why_not_spawned(cwd: str | None, error: Exception) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"no server can be started in cwd={cwd!r}: it is no folder any more. Make it again, or set another cwd."
    if isinstance(error, ValueError):
        return (
            f"a server cannot be given its command and environment variables: {error}. Look at both for odd characters."
        )
    return f"could not start {sys.executable}: {error}"
