"""The parent of several workers: it starts them on one socket, starts a dead one again, and ends with them.

It serves nothing itself and imports no application, so it stays small. SIGTERM or SIGINT: the workers drain; a second
one: they end at once. A worker that does not end in its time is killed. When the parent itself dies, however it does,
its workers end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openenv_trl.server.lease import Lease
from openenv_trl.server.workers.control import DRAIN, QUIT
from openenv_trl.server.workers.memory import SharedMemory, size_of
from openenv_trl.server.workers.place import WorkerPlace

logger = logging.getLogger("openenv_trl.server")

WRONG_SETTINGS = 2
"""The exit status of a worker that cannot ever serve: its application or its options are wrong."""

_STOP_MARGIN_S = 5.0
_QUIT_S = 8.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class RestartPlan:
    """When a worker that died is started again: at once after a good run, later and later after bad ones."""

    first_s: float = 0.1
    longest_s: float = 5.0
    good_run_s: float = 10.0
    failures: int = 0

    def pause_s(self, ran_s: float) -> float:
        """Return how long to wait after a run of that length."""
        if ran_s >= self.good_run_s:
            self.failures = 0
        self.failures += 1
        return min(self.longest_s, self.first_s * 2.0 ** min(self.failures - 1, 30))


@dataclass
class _Worker:
    """One worker's place, and the process that has it now."""

    index: int
    plan: RestartPlan = field(default_factory=RestartPlan)
    process: subprocess.Popen[bytes] | None = None
    link: socket.socket | None = None
    started_at: float = 0.0
    start_at: float | None = None
    heard: bytes = b""

    @property
    def longest_stop_s(self) -> float | None:
        """How long its orderly stop may take; None before it is ready."""
        line, newline, _ = self.heard.partition(b"\n")
        return float(line) if newline else None


class WorkersParent:
    """Runs the workers of one server.

    Args:
        command: Runs a worker, which reads its place from its environment variables.
        listening: The socket that the workers accept from; its descriptor keeps its number in them.
        workers: How many.
        ready: Called once all workers take connections for the first time.
        lease: The server's lease; the workers take its renewals.
    """

    def __init__(
        self,
        command: Sequence[str],
        listening: socket.socket,
        workers: int,
        ready: Callable[[], None],
        lease: Lease | None = None,
    ) -> None:
        self._command = list(command)
        self._listening = listening
        self._ready = ready
        self._lease = lease
        self._workers = [_Worker(index) for index in range(workers)]
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object
        self._file.truncate(size_of(workers))
        self._memory = SharedMemory(self._file.fileno(), workers)
        self._family = f"openenv-trl-{uuid.uuid4().hex}"
        self._was_ready = False
        self._stops = 0
        self._kill_at: float | None = None
        self._status = 0

    def run(self) -> int:
        """Run the workers until all have ended after a signal; return the exit status."""
        with contextlib.ExitStack() as stack:
            if not _has_abstract_addresses():
                self._family = stack.enter_context(tempfile.TemporaryDirectory(prefix="openenv-trl-"))
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(self._wake_on_signals(stack), selectors.EVENT_READ)
            for worker in self._workers:
                self._start(worker, selector)
            while any(worker.process is not None or worker.start_at is not None for worker in self._workers):
                for key, _ in selector.select(self._pause_s()):
                    if key.data is None:
                        self._take_signals(os.read(key.fd, 4096))
                    else:
                        self._hear(key.data, selector)
                self._reap(selector)
                self._start_due(selector)
                self._kill_late()
        return self._status

    def _wake_on_signals(self, stack: contextlib.ExitStack) -> int:
        reader, writer = os.pipe()
        for fd in (reader, writer):
            os.set_blocking(fd, False)
            stack.callback(os.close, fd)
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writer, warn_on_full_buffer=False))
        for number in (*_SIGNALS, signal.SIGCHLD):
            signal.signal(number, _note_signal)
        return reader

    def _start(self, worker: _Worker, selector: selectors.BaseSelector) -> None:
        worker.start_at = None
        ours, theirs = socket.socketpair()
        with theirs:
            place = WorkerPlace(
                index=worker.index,
                count=len(self._workers),
                family=self._family,
                ledger_fd=self._file.fileno(),
                control_fd=theirs.fileno(),
                parent=os.getpid(),
                lease=None if self._lease is None else self._lease.terms,
                lease_fd=-1 if self._lease is None else self._lease.record.fd,
            )
            shared = (self._listening.fileno(), place.ledger_fd, place.control_fd)
            try:
                worker.process = subprocess.Popen(
                    self._command,
                    env={**os.environ, **place.variable()},
                    pass_fds=shared if place.lease is None else (*shared, place.lease_fd),
                )
            except OSError as error:
                ours.close()
                self._plan_restart(worker, f"could not be started: {error}", 0.0)
                return
        ours.setblocking(False)
        worker.link, worker.heard, worker.started_at = ours, b"", time.monotonic()
        selector.register(ours, selectors.EVENT_READ, worker)

    def _hear(self, worker: _Worker, selector: selectors.BaseSelector) -> None:
        assert worker.link is not None
        try:
            data = worker.link.recv(256)
        except OSError:
            data = b""
        if not data:
            self._drop_link(worker, selector)  # it is ending; its exit tells how
            return
        worker.heard += data
        if not self._was_ready and all(each.longest_stop_s is not None for each in self._workers):
            self._was_ready = True
            self._ready()

    def _drop_link(self, worker: _Worker, selector: selectors.BaseSelector) -> None:
        if worker.link is not None:
            selector.unregister(worker.link)
            worker.link.close()
            worker.link = None

    def _reap(self, selector: selectors.BaseSelector) -> None:
        for worker in self._workers:
            status = None if worker.process is None else worker.process.poll()
            if worker.process is None or status is None:
                continue
            pid, worker.process = worker.process.pid, None
            self._drop_link(worker, selector)
            self._memory.forget(worker.index)
            if self._stops:
                continue
            if status == WRONG_SETTINGS and worker.longest_stop_s is None and not self._was_ready:
                self._take_wrong_settings(worker)
                continue
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            ran_s = time.monotonic() - worker.started_at
            self._plan_restart(worker, f"(process {pid}) {how}; its sessions are lost", ran_s)

    def _take_wrong_settings(self, worker: _Worker) -> None:
        # All workers fail alike, and the first one says why: it is let to its end.
        if worker.index == 0:
            self._status = WRONG_SETTINGS
            self._stop(QUIT)
        else:
            worker.start_at = time.monotonic() + worker.plan.pause_s(0.0)

    def _plan_restart(self, worker: _Worker, what: str, ran_s: float) -> None:
        pause_s = worker.plan.pause_s(ran_s)
        worker.start_at = time.monotonic() + pause_s
        logger.warning("Worker %d %s. It is started again in %.1f s", worker.index, what, pause_s)

    def _start_due(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.start_at is not None and worker.start_at <= now:
                self._start(worker, selector)

    def _take_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _SIGNALS:
                self._stop(QUIT if self._stops else DRAIN)

    def _stop(self, word: bytes) -> None:
        self._stops += 1
        longest_s = 0.0
        for worker in self._workers:
            worker.start_at = None
            if worker.process is None:
                continue
            longest_s = max(longest_s, worker.longest_stop_s or 0.0)
            if worker.link is not None:
                with contextlib.suppress(OSError):
                    worker.link.send(word)
            if worker.longest_stop_s is None:
                worker.process.terminate()  # as long as it imports it reads no words, and has nothing to lose
        limit_s = _QUIT_S if word == QUIT else longest_s + _STOP_MARGIN_S
        self._kill_at = time.monotonic() + limit_s

    def _pause_s(self) -> float | None:
        times = [worker.start_at for worker in self._workers] + [self._kill_at]
        known = [each for each in times if each is not None]
        return max(0.0, min(known) - time.monotonic()) if known else None

    def _kill_late(self) -> None:
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        self._kill_at = time.monotonic() + _STOP_MARGIN_S
        for worker in self._workers:
            if worker.process is not None:
                logger.warning("Worker %d did not end in time; it is killed", worker.index)
                worker.process.kill()


def _has_abstract_addresses() -> bool:
    return os.uname().sysname == "Linux"


def _note_signal(_number: int, _frame: object) -> None:
    """Do nothing: a signal with a handler is written to the wake-up pipe, and read there."""
