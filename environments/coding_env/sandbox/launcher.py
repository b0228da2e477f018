"""Starts sessions: forks of one small process that was started clean, some of them before anyone asks."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from coding_env.sandbox import bubblewrap as bwrap
from coding_env.sandbox import control_groups, first_process
from coding_env.sandbox.first_process import FirstProcess, NotStartedError
from coding_env.sandbox.inside import confine, frames, kernel, zygote
from coding_env.sandbox.layers import Level, SandboxReport
from coding_env.sandbox.limits import Limits
from coding_env.sandbox.session import SandboxSession, open_worker
from coding_env.sandbox.users import UserRange
from openenv_trl.errors import ConfigurationError, EnvironmentExecutionError

logger = logging.getLogger(__name__)

Executor = Literal["python", "smolagents"]
Bubblewrap = Literal["auto", "always", "never"]


class Sandbox:
    """Where sessions come from.

    Args:
        limits: What each session may use.
        packages: Folders of packages that code may import from, beside the standard library.
        warm: Sessions that are kept ready, so that a reset waits for none.
        disabled: Layers that are not to be used, for trying what is left without them.
        minimum: The least that the sandbox must be worth.
        uid_base: The first of the users that sessions have where the server is root; a range that no other sandbox of
            the machine has if None.
        executor: What runs cells: Python, or the interpreter that smolagents has for it.
        imports: Modules that smolagents lets them import, beside those that it does by itself.
        bubblewrap: Whether bubblewrap starts the first process: where namespaces cannot be had without, or always.

    Raises:
        ConfigurationError: It is worth less than ``minimum`` here, or what was asked for is not there.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        packages: Sequence[str] = (),
        warm: int = 4,
        disabled: Sequence[str] = (),
        minimum: Level = Level.NONE,
        uid_base: int | None = None,
        executor: Executor = "python",
        imports: Sequence[str] = (),
        bubblewrap: Bubblewrap = "auto",
    ) -> None:
        self.limits = limits or Limits()
        unknown = sorted(set(disabled) - set(confine.LAYERS))
        if unknown:
            raise ConfigurationError(
                f"The sandbox has no layer {', '.join(unknown)} to leave out (CODING_DISABLED_LAYERS). Its layers are "
                f"{', '.join(confine.LAYERS)}."
            )
        self._users: UserRange | None = None
        if uid_base is None and os.geteuid() == 0:
            self._users = UserRange(2 * confine.KEEPERS_AFTER)
            uid_base = self._users.first
        self._needs = first_process.Needs(
            self.limits,
            packages=tuple(os.path.realpath(folder) for folder in packages),
            disabled=tuple(disabled),
            uid_base=uid_base or 0,
            executor=executor,
            imports=tuple(imports),
            import_from=_where_smolagents_is() if executor == "smolagents" else (),
        )
        self.executor: Executor = executor
        self._warm = warm
        self._bubblewrap = bubblewrap
        self._lock = threading.RLock()
        self._ready: deque[SandboxSession] = deque()
        self._started = 0
        self._first: FirstProcess | None = None
        self._groups: control_groups.ControlGroups | None = None
        self._closed = False
        self._folder = ""
        self._left: list[str] = []  # empty workspaces that only this process may remove
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
            session = self._take_ready() or self._spawn()
            # One that is taken is there, whatever becomes of the next.
            with contextlib.suppress(EnvironmentExecutionError):
                self.warm_up()
            return session

    def _take_ready(self) -> SandboxSession | None:
        while self._ready:
            session = self._ready.popleft()
            if session.is_sound():
                return session
            session.close()
        return None

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
            self._leave_groups()
            if self._users is not None:
                self._users.close()
        atexit.unregister(self.close)

    def _start(self) -> SandboxReport:
        if not kernel.IS_LINUX:
            raise ConfigurationError("The coding environment's sandbox needs Linux. Elsewhere, run its Docker image.")
        no_groups = "switched off"
        # Sessions that outlive the first process keep theirs.
        if "cgroup" not in self._needs.disabled and self._groups is None:
            self._groups, no_groups = control_groups.find(self.limits)
        try:
            self._first = self._start_first(no_groups)
        except NotStartedError as error:
            self._stop()
            self._leave_groups()
            raise ConfigurationError(f"The sandbox's process could not be started: {error}.") from error
        report = self._first.report
        if "cgroup" not in report.layers:
            self._leave_groups()
        if not {"files", "user"} & set(report.layers):
            # Sessions have this process's user, and would find its memory in /proc.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        return report

    def _start_first(self, no_groups: str) -> FirstProcess:
        """Start the first process, by bubblewrap where that is asked for or is worth more."""
        if self._bubblewrap == "always":
            return self._try(no_groups, under_bubblewrap=True)
        plain = self._try(no_groups, under_bubblewrap=False)
        wanted = self._bubblewrap == "auto" and "files" not in {*plain.report.layers, *self._needs.disabled}
        if not wanted:
            return plain
        if bwrap.program() is None:
            plain.report.missing["bubblewrap"] = "it is not installed"
            return plain
        plain.stop()
        try:
            return self._try(no_groups, under_bubblewrap=True)
        except NotStartedError as error:
            plain = self._try(no_groups, under_bubblewrap=False)
            plain.report.missing["bubblewrap"] = str(error)
            return plain

    def _try(self, no_groups: str, *, under_bubblewrap: bool) -> FirstProcess:
        zygote.remove_folder(self._folder)
        self._folder = _make_folder()
        with contextlib.ExitStack() as trial:
            descriptors = trial.enter_context(self._groups.for_a_trial()) if self._groups else []
            return first_process.start(
                self._needs,
                self._folder,
                under_bubblewrap=under_bubblewrap,
                groups=descriptors,
                group_folders=self._groups.folders if self._groups else (),
                no_groups=no_groups,
            )

    @property
    def _zygote(self) -> subprocess.Popen[bytes] | None:
        return self._first.process if self._first else None

    def _stop(self) -> None:
        if self._first is not None:
            self._first.stop()
            self._first = None
        zygote.remove_folder(self._folder)  # where it could not do so itself

    def _leave_groups(self) -> None:
        if self._groups is not None:
            self._groups.close()
            self._groups = None

    def _spawn(self) -> SandboxSession:
        if self._closed:
            raise EnvironmentExecutionError("The sandbox was closed.", phase="reset")
        for _ in range(2):
            group = self._new_group()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            worker, descriptors = open_worker()
            with theirs:
                try:
                    self._tidy()
                    workspace = self._send([theirs.fileno(), *descriptors, *(group.descriptors if group else [])])
                except OSError as error:
                    ours.close()
                    worker.close()
                    if group is not None:
                        group.release()
                    logger.warning("The sandbox's process is started anew: %s", error)
                    self._start_anew()
                    continue
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
                    if group is not None:
                        group.close_descriptors()

            def close(group: control_groups.Group | None = group, workspace: str = workspace) -> None:
                if group is not None:
                    group.release()
                if workspace:
                    self._left.append(workspace)

            return SandboxSession(ours, worker, self.limits, close)
        raise EnvironmentExecutionError("No session of the sandbox can be started.", phase="reset")

    def _start_anew(self) -> None:
        self._stop()
        try:
            report = self._start()
        except ConfigurationError as error:
            raise EnvironmentExecutionError(str(error), phase="reset") from error
        lost = sorted(set(self.report.layers) - set(report.layers))
        if lost:  # where the system is short of something; sessions are never worth less than was said at the start
            self._stop()
            raise EnvironmentExecutionError(
                f"The sandbox was started anew without its layers {', '.join(lost)}, so no session is started. "
                f"{report.sentence()}",
                phase="reset",
            )

    def _new_group(self) -> control_groups.Group | None:
        try:
            return self._groups.new() if self._groups else None
        except OSError as error:
            raise EnvironmentExecutionError(
                f"No session of the sandbox can be started: it gets no control group ({error}). End sessions, or raise "
                "the limit on groups; or leave the layer out: CODING_DISABLED_LAYERS=cgroup.",
                phase="reset",
            ) from error

    def _tidy(self) -> None:
        """Remove the workspaces of ended sessions, which their keepers have emptied, where only root may do that."""
        for _ in range(len(self._left)):
            workspace = self._left.pop(0)
            with contextlib.suppress(FileNotFoundError):
                try:
                    os.rmdir(workspace)
                except OSError:  # not yet empty
                    self._left.append(workspace)

    def _send(self, descriptors: list[int]) -> str:
        if self._first is None:
            raise BrokenPipeError("it is not there")
        uid = None
        if "user" in self.report.layers:
            # None again soon: the old one may still be dying.
            uid = self._needs.uid_base + self._started % confine.KEEPERS_AFTER
        self._started += 1
        workspace = ""
        if "files" not in self.report.layers:
            workspace = os.path.join(self._folder, "workspaces", secrets.token_hex(16))
            os.mkdir(workspace, 0o700)
            if uid is not None:
                os.chown(workspace, uid, uid)
        message = frames.pack({"uid": uid, "workspace": workspace})
        socket.send_fds(self._first.way, [message], descriptors)
        return workspace


def _make_folder() -> str:
    """A folder for the sandbox, in which nobody but this process finds anything that he was not told of."""
    folder = tempfile.mkdtemp(prefix="openenv-coding-")
    os.chmod(folder, 0o711)
    for name in ("root", "workspaces"):
        os.mkdir(os.path.join(folder, name))
    # Nobody lists it, so that sessions that share their user cannot find each other's.
    os.chmod(os.path.join(folder, "workspaces"), 0o311 if os.geteuid() == 0 else 0o300)
    return folder


def _where_smolagents_is() -> tuple[str, ...]:
    """Folders that smolagents and what it needs are imported from: those of this process."""
    if importlib.util.find_spec("smolagents") is None:
        raise ConfigurationError(
            "CODING_EXECUTOR=smolagents needs the package smolagents where the server runs: "
            "pip install smolagents, or this package with its extra: pip install 'openenv-coding_env[smolagents]'."
        )
    return tuple(os.path.realpath(folder) for folder in sys.path if folder and os.path.isdir(folder))


_shared: dict[tuple[object, ...], Sandbox] = {}
_shared_lock = threading.Lock()


def shared_sandbox(limits: Limits, **options: Any) -> Sandbox:
    """Return the process's sandbox with these settings; the first call starts it (blocking).

    Args:
        limits: What each session may use.
        **options: The other arguments of `Sandbox`.
    """
    key = (os.getpid(), limits, *sorted(options.items()))
    with _shared_lock:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = Sandbox(limits, **options)
        return found


def close_shared_sandboxes() -> None:
    """End the sandboxes of this process; the next call of `shared_sandbox` starts a new one."""
    with _shared_lock, contextlib.suppress(RuntimeError):
        while _shared:
            _shared.popitem()[1].close()
