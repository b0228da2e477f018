"""The keeper of a session: the first process in its namespaces, which starts and ends the process that runs code.

It runs no code of the agent's, and it outlives the worker: files stay when a worker had to be killed. While nobody asks
anything of the session it stops all there is in it, so that threads that were left behind cost nothing. When the server
closes its end, or dies, the keeper kills all there is in the session and ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from . import confine, disk, frames, kernel

MAX_MESSAGE = 1 << 16
"""Bytes of a message between server and keeper."""
START = b"start"
KILL = b"kill"
INTERRUPT = b"interrupt"
REST = b"rest"
WORK = b"work"
_STILL_AFTER_S = 0.2  # so that calls in quick succession stop nothing
_LOOK_EVERY_S = 0.1
_LOOK_SHARE = 10  # of the time at most one part in so many is spent on looking

Work = Callable[[socket.socket, dict[str, Any]], None]


def keep(
    control: socket.socket,
    first: list[int],
    groups: list[int],
    config: dict[str, Any],
    request: dict[str, Any],
    work: Work,
) -> None:
    """Be a session, from its start to its end. Does not return.

    Args:
        control: To the server.
        first: The descriptors of the first worker: frames, standard output, standard error.
        groups: Descriptors of the control groups that it joins.
        config: What all sessions have in common: layers, limits, paths.
        request: What this one has: ``uid`` and ``workspace``.
        work: What a worker does.
    """
    layers, uid = frozenset(config["layers"]), request["uid"]
    os.setsid()
    _be_killed_first()
    try:
        confine.join_groups(groups)
        confine.leave_namespaces(layers, uid)
        if "processes" in layers:
            if os.fork():
                os._exit(0)
            os.setsid()
        if kernel.IS_LINUX:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        if "files" in layers:
            megabytes = config["limits"]["workspace_mb"]
            confine.make_file_tree(config["root"], config["readable"], config["hidden"], megabytes, uid)
        else:
            os.chdir(request["workspace"])
        confine.become_keeper(uid)
        if kernel.IS_LINUX:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    except OSError as error:
        _tell(control, {"failed": f"{error}.", "unstarted": True})
        os._exit(1)
    _Keeper(control, config, request, work).run(first)
    os._exit(0)


def tell_unstarted(control: int, error: OSError) -> None:
    """Tell the server that a session was not started, in the name of its keeper, which is not there.

    Args:
        control: What the keeper would have had to the server.
        error: Why.
    """
    with socket.socket(fileno=os.dup(control)) as way:
        _tell(way, {"failed": f"{error}.", "unstarted": True})


class _Keeper:
    def __init__(self, control: socket.socket, config: dict[str, Any], request: dict[str, Any], work: Work) -> None:
        self._control = control
        self._config = config
        self._request = request
        self._work = work
        self._worker = 0
        self._still_at: float | None = None
        self._is_still = False
        self._is_on_disk = "files" not in config["layers"]
        self._look_at: float | None = None
        self._signals, self._wake = os.pipe()
        for descriptor in (self._signals, self._wake):
            os.set_blocking(descriptor, False)

    def run(self, first: list[int]) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._start(first)
        waiter = select.poll()
        waiter.register(self._control, select.POLLIN)
        waiter.register(self._signals, select.POLLIN)
        while True:
            for descriptor, _ in waiter.poll(self._wait_ms()):
                if descriptor == self._signals:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._signals, 4096)
                    self._reap()
                elif not self._obey():
                    self._kill()
                    self._remove_files()
                    return
            if _is_due(self._still_at):
                self._still_at, self._is_still = None, True
                self._signal(signal.SIGSTOP)
                if self._is_on_disk:
                    self._look_at = time.monotonic()
            if _is_due(self._look_at) and (why := self._look()):
                self._kill()
                self._remove_files()
                _tell(self._control, {"failed": f"The session was ended: {why}."})
                return

    def _wait_ms(self) -> float | None:
        times = [at for at in (self._still_at, self._look_at) if at is not None]
        return max(0.0, min(times) - time.monotonic()) * 1000 if times else None

    def _look(self) -> str:
        """See whether the session holds too much, and when to look next: not before there is work, where it rests."""
        started = time.monotonic()
        why = disk.too_much(self._request["workspace"], self._config["limits"]["workspace_mb"]) or self._too_many()
        took = time.monotonic() - started
        rests = self._still_at is not None or self._is_still
        self._look_at = None if rests else time.monotonic() + max(_LOOK_EVERY_S, _LOOK_SHARE * took)
        return why

    def _too_many(self) -> str:
        """Whether it has too many threads, where the kernel counts those of all sessions together."""
        most = self._config["limits"]["processes"]
        if self._request["uid"] is not None or not self._worker:
            return ""
        threads = _threads(self._worker)
        return f"it had {threads} threads, and {most} are allowed" if threads > most else ""

    def _remove_files(self) -> None:
        """Remove the workspace where it is no mount, which ends with the session by itself."""
        if self._is_on_disk:
            disk.remove(self._request["workspace"])

    def _obey(self) -> bool:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, MAX_MESSAGE, 3)
        except OSError:
            return False
        if message == START and len(descriptors) == 3:
            self._kill()
            self._start(descriptors)
        elif message == KILL:
            self._kill()
        elif message == INTERRUPT and self._worker:
            os.kill(self._worker, signal.SIGINT)
        elif message == REST:
            self._still_at = time.monotonic() + _STILL_AFTER_S
            self._look_at = self._look_at and time.monotonic()
        elif message == WORK:
            self._still_at = None
            if self._is_on_disk:
                self._look_at = time.monotonic() + _LOOK_EVERY_S
            if self._is_still:
                self._is_still = False
                self._signal(signal.SIGCONT)
        return bool(message)

    def _start(self, descriptors: list[int]) -> None:
        try:
            self._worker = os.fork()
        except OSError as error:
            self._worker = -1
            _tell(self._control, {"ended": None, "unstarted": f"{error}."})
        if self._worker == 0:
            try:
                self._be_worker(descriptors)
            finally:
                os._exit(70)
        self._worker = max(0, self._worker)
        for descriptor in descriptors:
            os.close(descriptor)

    def _be_worker(self, descriptors: list[int]) -> None:
        config, request = self._config, self._request
        layers = frozenset(config["layers"])
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        frames_way = _take_descriptors(descriptors)
        os.environ.clear()
        workspace, temporary = os.getcwd(), "/tmp" if "files" in layers else os.getcwd()
        os.environ.update(config["variables"], HOME=workspace, TMPDIR=temporary)
        own_uid = request["uid"] is not None
        confine.become_worker(request["uid"])
        confine.set_limits(config["limits"], layers, own_uid, config["shared_processes"])
        writable = [workspace, temporary, "/dev/null"]
        # In a file tree of its own there is nothing that must not be read.
        readable = ["/"] if "files" in layers else [*config["landlock_readable"], "/dev/null", "/dev/urandom"]
        confine.confine_worker(layers, own_uid, readable, writable)
        if kernel.IS_LINUX and not ("processes" in layers or own_uid):
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # so that sessions do not find each other's folders in /proc
        self._work(frames_way, config)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._worker:
                self._worker = 0
                self._kill()
                _tell(self._control, {"ended": os.waitstatus_to_exitcode(status)})

    def _kill(self) -> None:
        """Kill all there is in the session but this process, and wait until it is gone."""
        self._still_at, self._look_at, self._is_still = None, None, False
        while True:
            self._signal(signal.SIGKILL)
            self._worker = 0
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _signal(self, number: int) -> None:
        """Send a signal to all there is in the session but this process: by one call where it is alone with them."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if "processes" in self._config["layers"] or self._request["uid"] is not None:
                os.kill(-1, number)
                return
            for pid in {self._worker, *_children()} - {0}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def _is_due(at: float | None) -> bool:
    return at is not None and time.monotonic() >= at


def _take_descriptors(descriptors: list[int]) -> socket.socket:
    """Put them where they belong, 1 and 2 and 3, with nothing on 0, and close everything else."""
    moved = [os.dup2(descriptor, 60 + index) for index, descriptor in enumerate(descriptors)]
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(moved[1], 1)
    os.dup2(moved[2], 2)
    os.dup2(moved[0], 3, inheritable=False)
    os.closerange(4, 4096)
    return socket.socket(fileno=3)


def _wake_up(number: int, frame: object) -> None:
    """Do nothing: that a signal came is told by the descriptor."""


def _children() -> set[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return {int(pid) for pid in file.read().split()}
    except OSError:
        return set()


def _threads(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status") as file:
            told = dict(line.split(":", 1) for line in file if ":" in line)
        # A list of processes of another namespace may have somebody else by this number.
        return int(told["Threads"]) if int(told["PPid"]) == os.getpid() else 0
    except (OSError, KeyError, ValueError):
        return 0


def _be_killed_first() -> None:
    """Where memory runs out, let the kernel take a session and not the server."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _tell(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.send(frames.pack(message))
