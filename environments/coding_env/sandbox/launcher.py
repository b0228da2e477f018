"""Starts sessions: forks of one small process that was started clean, some of them before anyone asks."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from coding_env.sandbox import tree
from coding_env.sandbox.inside import frames, kernel, zygote
from coding_env.sandbox.layers import Level, SandboxReport
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.session import SandboxSession, open_worker
from openenv_trl.errors import ConfigurationError, EnvironmentExecutionError

logger = logging.getLogger(__name__)

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from inside.zygote import main; main()"
_PRELOADED = (
    "array, base64, bisect, calendar, collections.abc, contextlib, copy, csv, dataclasses, datetime, decimal, "
    "difflib, enum, fractions, functools, hashlib, heapq, io, itertools, json, math, operator, pickle, pprint, random, "
    "re, runpy, statistics, string, subprocess, tempfile, textwrap, threading, time, typing, uuid"
)
_START_TIMEOUT_S = 60.0
_UIDS = 100_000
_VARIABLES = {
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each costs 64 MB of address space, which is limited
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # equal seeds give equal orders of sets
}


class Sandbox:
    """Where sessions come from.

    Args:
        limits: What each session may use.
        packages: Folders of packages that code may import from, beside the standard library.
        warm: Sessions that are kept ready, so that a reset waits for none.
        disabled: Layers that are not to be used, for trying what is left without them.
        minimum: The least that the sandbox must be worth.
        uid_base: The first of the users that sessions have where the server is root.

    Raises:
        ConfigurationError: It is worth less than ``minimum`` here.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        packages: Sequence[str] = (),
        warm: int = 4,
        disabled: Sequence[str] = (),
        minimum: Level = Level.NONE,
        uid_base: int = 1_900_000,
    ) -> None:
        self.limits = limits or Limits()
        self._packages = [os.path.realpath(folder) for folder in packages]
        self._warm = warm
        self._disabled = list(disabled)
        self._uid_base = uid_base
        self._lock = threading.RLock()
        self._ready: deque[SandboxSession] = deque()
        self._started = 0
        self._zygote: subprocess.Popen[bytes] | None = None
        self._way: socket.socket | None = None
        self._closed = False
        self._folder = ""
        with self._lock:
            self.report = self._start()
        atexit.register(self.close)
        if self.report.level < minimum:
            self.close()
            raise ConfigurationError(
                f"{self.report.sentence()} At least '{minimum.name.lower()}' was asked for (CODING_MIN_LEVEL). "
                "Run the server where the missing layers are to be had, or ask for less."
            )
        if self.report.level < Level.STRONG:
            logger.warning("%s Do not run code here that you would not run as this user.", self.report.sentence())

    def take(self) -> SandboxSession:
        """Return a session that nobody has used; without waiting.

        Raises:
            EnvironmentExecutionError: No session can be started.
        """
        with self._lock:
            session = self._ready.popleft() if self._ready else self._spawn()
            while len(self._ready) < self._warm:
                self._ready.append(self._spawn())
            return session

    def warm_up(self) -> None:
        """Have as many sessions ready as are kept so."""
        with self._lock:
            while len(self._ready) < self._warm:
                self._ready.append(self._spawn())

    def close(self) -> None:
        """End every session, also those in use. May be called again."""
        with self._lock:
            self._closed = True
            while self._ready:
                self._ready.popleft().close()
            self._stop()
        atexit.unregister(self.close)

    def _start(self) -> SandboxReport:
        if not kernel.IS_LINUX:
            raise ConfigurationError("The coding environment's sandbox needs Linux. Elsewhere, run its Docker image.")
        self._folder = tempfile.mkdtemp(prefix="openenv-coding-")
        os.chmod(self._folder, 0o711)
        for name in ("root", "workspaces"):
            os.mkdir(os.path.join(self._folder, name))
        # Nobody lists it, so that sessions that share their user cannot find each other's.
        os.chmod(os.path.join(self._folder, "workspaces"), 0o311 if os.geteuid() == 0 else 0o300)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            program = _PROGRAM.replace("import sys;", f"import sys, {_PRELOADED};", 1)
            self._zygote = subprocess.Popen(
                [tree.interpreter(), "-I", "-S", "-c", program, str(Path(__file__).parent), str(theirs.fileno())],
                env=_VARIABLES,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._way = ours
        readable = [*tree.readable(), *self._packages]
        config = {
            "folder": self._folder,
            "root": os.path.join(self._folder, "root"),
            "readable": readable,
            "hidden": tree.hidden(self._packages),
            "landlock_readable": [*tree.landlock_readable(), *self._packages],
            "packages": self._packages,
            "off": self._disabled,
            "uid_base": self._uid_base,
            "limits": self.limits.model_dump(),
            "shared_processes": _share_of_processes(),
            "variables": _VARIABLES,
        }
        ours.settimeout(_START_TIMEOUT_S)
        try:
            ours.send(frames.pack(config))
            data = ours.recv(zygote.MAX_MESSAGE)
        except OSError as error:
            data = b""
            logger.warning("The sandbox's process did not answer: %s", error)
        if not data:
            self._stop()
            raise ConfigurationError(
                f"The sandbox's process could not be started with {tree.interpreter()}. See its error above."
            )
        report = SandboxReport.model_validate(frames.Unpacker(zygote.MAX_MESSAGE).feed(data)[0])
        if kernel.IS_LINUX and not {"files", "user"} & set(report.layers):
            # Sessions have this process's user, and would find its memory in /proc.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        return report

    def _stop(self) -> None:
        if self._way is not None:
            self._way.close()
            self._way = None
        if self._zygote is not None:
            try:
                self._zygote.wait(5)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None
            zygote.remove_folder(self._folder)  # where it could not do so itself

    def _spawn(self) -> SandboxSession:
        if self._closed:
            raise EnvironmentExecutionError("The sandbox was closed.", phase="reset")
        for _ in range(2):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            worker, descriptors = open_worker()
            with theirs:
                try:
                    self._send(theirs.fileno(), descriptors)
                except OSError as error:
                    ours.close()
                    worker.close()
                    logger.warning("The sandbox's process is started anew: %s", error)
                    self._stop()
                    self._start()
                    continue
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
            return SandboxSession(ours, worker, self.limits)
        raise EnvironmentExecutionError("No session of the sandbox can be started.", phase="reset")

    def _send(self, control: int, descriptors: list[int]) -> None:
        if self._way is None:
            raise BrokenPipeError("it is not there")
        uid = None
        if "user" in self.report.layers:
            uid = self._uid_base + self._started % _UIDS  # none again soon: the old one may still be dying
        self._started += 1
        workspace = ""
        if "files" not in self.report.layers:
            workspace = os.path.join(self._folder, "workspaces", secrets.token_hex(16))
            os.mkdir(workspace, 0o700)
            if uid is not None:
                os.chown(workspace, uid, uid)
        socket.send_fds(self._way, [frames.pack({"uid": uid, "workspace": workspace})], [control, *descriptors])


def _share_of_processes() -> int | None:
    """How many processes and threads sessions may have together that share the server's user: three of four."""
    for path in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"):
        with contextlib.suppress(OSError, ValueError):
            return int(Path(path).read_text()) * 3 // 4
    return None


_shared: dict[tuple[object, ...], Sandbox] = {}
_shared_lock = threading.Lock()


def shared_sandbox(
    limits: Limits, packages: tuple[str, ...], warm: int, disabled: tuple[str, ...], minimum: Level
) -> Sandbox:
    """Return the process's sandbox with these settings; the first call starts it (blocking)."""
    key = (os.getpid(), limits, packages, warm, disabled, minimum)
    with _shared_lock:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = Sandbox(limits, packages=packages, warm=warm, disabled=disabled, minimum=minimum)
        return found


def close_shared_sandboxes() -> None:
    """End the sandboxes of this process; the next call of `shared_sandbox` starts a new one."""
    with _shared_lock, contextlib.suppress(RuntimeError):
        while _shared:
            _shared.popitem()[1].close()
