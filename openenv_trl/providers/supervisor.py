"""The process between a provider and one environment server: when the provider dies, the server dies.

It is run as ``python -I -S supervisor.py PARENT_PID GRACE_S STATUS_FD PASSED_FDS COMMAND...`` and imports
only the standard library, so that it starts quickly. It starts the command in a process group of its
own and then waits for one of:

- its standard input, a pipe from the provider: any byte, or its end, means "stop" (the provider closed it
  or died);
- the death of the provider's process itself (a pidfd where there is one, and the parent's id): a forked
  sibling, such as a data loader's worker, may hold the pipe open after the provider is gone;
- a signal that asks it to stop;
- the end of the command.

Each way ends the same: SIGTERM to the command's whole group, a grace time, SIGKILL until nothing is left.
On Linux it is also the "subreaper" of everything below it, so a process that left the group (a daemon that
forked twice) is found and ended too, and the command gets SIGKILL from the kernel should the supervisor
itself be killed. Elsewhere a process that leaves the group is not found. When the supervisor is killed, the
provider ends the group.

On ``STATUS_FD`` it writes ``pid N`` when the command runs and ``exit N`` when it has ended (negative: the
signal).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Without a pidfd, how often the parent's id is looked at.
PARENT_CHECK_MS = 500
# After SIGKILL a process can linger only in the kernel (a stuck disk); waiting longer would not help.
KILL_TIMEOUT_S = 10.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _prctl(option: int, value: int) -> bool:
    """Sets one attribute of this process on Linux; False where that cannot be done."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def _note_signal(number: int, frame: object) -> None:
    """Does nothing: a signal with a handler is written to the wake-up pipe, and read there."""


def descendants() -> set[int]:
    """The living processes below this one (Linux only; zombies are left out)."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The name is in brackets and may hold anything: the fields are read after the last bracket.
                state, parent = file.read().rpartition(b")")[2].split(maxsplit=2)[:2]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X"):
            parents[int(entry)] = int(parent)
    found: set[int] = set()
    for pid in parents:
        line: list[int] = []
        ancestor = pid
        while ancestor in parents and ancestor != os.getpid() and ancestor not in found:
            line.append(ancestor)
            ancestor = parents[ancestor]
        if ancestor == os.getpid() or ancestor in found:
            found.update(line)
    return found


class Supervisor:
    """One command, watched and ended."""

    def __init__(self, parent: int, grace_s: float, status_fd: int, fds: list[int], command: list[str]):
        self.parent = parent
        self.grace_s = grace_s
        self.status_fd = status_fd
        self.passed_fds = fds
        self.command = command
        self.child = 0
        self.exit_code: int | None = None
        self.stop_asked = False
        self.finds_all = False
        self.wake_fd, self._wake_write = os.pipe()

    def run(self) -> int:
        """Runs the command to its end, or ends it; returns the exit code for this process."""
        os.set_inheritable(self.status_fd, False)
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self.wake_fd, False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, _note_signal)
        self.finds_all = os.path.exists("/proc/self/stat") and _prctl(PR_SET_CHILD_SUBREAPER, 1)
        parent_fd = self._open_parent()
        if os.getppid() != self.parent:
            return 1
        self._start()
        self._watch(parent_fd)
        self._end()
        code = -signal.SIGKILL if self.exit_code is None else self.exit_code
        self._report(f"exit {code}")
        return code if code >= 0 else 128 - code

    def _open_parent(self) -> int | None:
        try:
            return os.pidfd_open(self.parent)
        except (AttributeError, OSError):
            return None

    def _report(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody is left who would read it
            os.write(self.status_fd, f"{text}\n".encode())

    def _start(self) -> None:
        supervisor = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            self._become_command(supervisor)
        with contextlib.suppress(OSError):  # the child did it first, and already runs the command
            os.setpgid(self.child, self.child)
        for fd in self.passed_fds:
            os.close(fd)
        self._report(f"pid {self.child}")

    def _become_command(self, supervisor: int) -> None:
        """In the forked child: leaves the supervisor's group, restores signals, becomes the command."""
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (*STOP_SIGNALS, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(1)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execvp(self.command[0], self.command)
        except OSError as error:
            os.write(2, f"cannot run {self.command[0]}: {error}\n".encode())
        finally:
            os._exit(127)

    def _watch(self, parent_fd: int | None) -> None:
        """Returns when the command has ended, or has to end."""
        poll = select.poll()
        for fd in (0, self.wake_fd, parent_fd):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        while self.exit_code is None and not self.stop_asked:
            ready = {fd for fd, _ in poll.poll(None if parent_fd is not None else PARENT_CHECK_MS)}
            if ready - {self.wake_fd} or os.getppid() != self.parent:
                self.stop_asked = True
            with contextlib.suppress(BlockingIOError):
                if any(number in STOP_SIGNALS for number in os.read(self.wake_fd, 4096)):
                    self.stop_asked = True
            self._reap()

    def _reap(self) -> bool:
        """Collects children that have ended; True while there are living ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def _anything_left(self) -> bool:
        has_children = self._reap()
        if self.finds_all:
            # Whatever loses its parent becomes a child of this process: no child left means nothing left.
            return has_children
        try:
            os.killpg(self.child, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return self.exit_code is None  # how macOS answers for a group of zombies
        return True

    def _signal_all(self, number: int) -> None:
        with contextlib.suppress(OSError):  # the group may be empty already
            os.killpg(self.child, number)
        for pid in descendants() if self.finds_all else ():
            # The group has the signal already, and to many a second SIGTERM means "now, at once".
            with contextlib.suppress(OSError):
                if number == signal.SIGKILL or os.getpgid(pid) != self.child:
                    os.kill(pid, number)

    def _end(self) -> None:
        """SIGTERM, the grace time, then SIGKILL until nothing is left below this process."""
        if not self._anything_left():
            return
        self._signal_all(signal.SIGTERM)
        grace_ends = time.monotonic() + self.grace_s
        while self._anything_left() and time.monotonic() < grace_ends:
            self._pause()
        kill_ends = time.monotonic() + KILL_TIMEOUT_S
        while self._anything_left() and time.monotonic() < kill_ends:
            self._signal_all(signal.SIGKILL)
            self._pause()

    def _pause(self) -> None:
        """Waits for a child's end, at most 20 ms: the end of a grandchild is not told."""
        select.select([self.wake_fd], [], [], 0.02)
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_fd, 4096)


def main(arguments: list[str]) -> int:
    """Reads the command line that the provider writes, and supervises."""
    parent, grace_s, status_fd, passed_fds = arguments[:4]
    fds = [int(fd) for fd in passed_fds.split(",") if fd]
    return Supervisor(int(parent), float(grace_s), int(status_fd), fds, arguments[4:]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
