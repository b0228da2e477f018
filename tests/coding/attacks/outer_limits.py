"""Limits round an attack, so that a hole in the sandbox harms that one run: ``outer_limits.py KIND COMMAND ...``.

The command gets namespaces of its own (processes, network, mounts, messages), a file system that is read-only but for a
small folder in memory, a control group where root may make one, and limits of each process. When it ends, or whoever
started this, nothing of it is left. KIND says who it is:

- ``root``: the user that this was started by, who may be root.
- ``nobody``: a user without rights, where this was started by root.
- ``mapped``: root in a user namespace of its own, and nobody outside: for attacks on what is not confined at all.

Where the system gives no namespaces there are the other limits; the variable OPENENV_ATTACK_LIMITS tells the command.
Only the standard library, and nothing of the sandbox's, so that a mistake there is none here.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534
_MAPPED_TO, _MAPPED_COUNT = 2_000_000_000, 3_000_000  # users that nobody has
_PROCESSES, _MEMORY = 400, 3 << 30
_OF_EACH_PROCESS = (
    (resource.RLIMIT_AS, 4 << 30),
    (resource.RLIMIT_CPU, 300),
    (resource.RLIMIT_FSIZE, 64 << 20),
    (resource.RLIMIT_CORE, 0),
)
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_OTHERS = 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000  # processes, network, messages, host's name
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _NO_DEVICES = 32, 4096, 16384, 1 << 18, 4
_SET_DEATH_SIGNAL = 1
_MOUNT_SETATTR, _AT_RECURSIVE, _READ_ONLY = 442, 0x8000, 1
_CONTROL_GROUPS = "/sys/fs/cgroup"
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    kind, command = sys.argv[1], sys.argv[2:]
    with control_group():
        for limit, value in _OF_EACH_PROCESS:
            hard = resource.getrlimit(limit)[1]
            least = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (least, least))
        folder = tempfile.mkdtemp(prefix="openenv-attacks-")
        os.chmod(folder, 0o755)
        try:
            code = run(kind, command, folder)
        finally:
            os.rmdir(folder)
    sys.exit(code)


@contextlib.contextmanager
def control_group() -> Iterator[None]:
    """A group for this process and all below it, where root may make one."""
    groups: list[tuple[Path, Path]] = []
    wanted = (
        ("pids", {"pids.max": str(_PROCESSES)}),
        ("memory", {"memory.limit_in_bytes": str(_MEMORY)}),
        ("", {"pids.max": str(_PROCESSES), "memory.max": str(_MEMORY)}),
    )
    for controller, limits in wanted:
        parent = Path(_CONTROL_GROUPS, controller)
        group = parent / f"openenv-attacks-{os.getpid()}"
        if (parent / "cgroup.procs").exists():
            _sweep(parent)
            with contextlib.suppress(OSError):
                group.mkdir()
                groups.append((group, parent))
                for name, value in limits.items():
                    with contextlib.suppress(OSError):
                        (group / name).write_text(value)
                (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        for group, parent in groups:
            with contextlib.suppress(OSError):
                (parent / "cgroup.procs").write_text(str(os.getpid()))
                group.rmdir()


def _sweep(parent: Path) -> None:
    """Remove the empty groups of runs that were killed."""
    for group in parent.glob("openenv-attacks-*"):
        if not Path("/proc", group.name.rpartition("-")[2]).exists():
            with contextlib.suppress(OSError):
                group.rmdir()


def run(kind: str, command: list[str], folder: str) -> int:
    """Run the command in its namespaces and return its exit code."""
    as_root = os.geteuid() == 0
    mapped = kind == "mapped" or not as_root
    ready, mapping_done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _die_with_parent()
        namespaces = _unshare(mapped)
        _die_with_parent()  # which new rights have undone
        os.write(ready[1], b"y" if namespaces else b"n")
        os.read(mapping_done[0], 1)
        if not namespaces:
            _execute(kind, command, "limits")
        first = os.fork()
        if first == 0:
            _be_first(kind, command, folder)
        os._exit(_code(os.waitpid(first, 0)[1]))
    if os.read(ready[0], 1) == b"y" and mapped:
        _map_users(child, as_root)
    os.write(mapping_done[1], b"y")
    return _code(os.waitpid(child, 0)[1])


def _unshare(mapped: bool) -> bool:
    return _libc.unshare(_NEW_MOUNTS | _OTHERS | (_NEW_USER if mapped else 0)) == 0


def _map_users(child: int, as_root: bool) -> None:
    for name, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        if not as_root:
            Path(f"/proc/{child}/setgroups").write_text("deny")
        text = f"0 {_MAPPED_TO} {_MAPPED_COUNT}" if as_root else f"0 {own} 1"
        Path(f"/proc/{child}/{name}_map").write_text(text)


def _be_first(kind: str, command: list[str], folder: str) -> None:
    """Be the first process of the namespace: all others end with it."""
    _die_with_parent()
    with contextlib.suppress(OSError):
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    _die_with_parent()  # which that has undone
    if kind == "mapped":  # counted in its own namespace, also where there is no control group
        resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    _libc.mount(None, b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)
    _make_read_only()
    for place, size in ((folder, 256), ("/dev/shm", 64)):
        options = f"size={size}m,mode=1777".encode()
        _libc.mount(b"tmpfs", place.encode(), b"tmpfs", ctypes.c_ulong(_NO_DEVICES), options)
    _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None)
    # So that the numbers of its processes are none that a session's own processes have in their namespace.
    with contextlib.suppress(OSError):
        Path("/proc/sys/kernel/ns_last_pid").write_text("20000")
    _set_read_only("/proc/sys")
    os.environ["TMPDIR"] = folder
    with socket.socket() as any_socket:  # so that there is a loopback to attack
        flags = struct.pack("16sh14x", b"lo", 0x1)
        with contextlib.suppress(OSError):
            fcntl.ioctl(any_socket, 0x8914, flags)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        _execute(kind, command, "namespaces")
    while True:
        pid, status = os.wait()  # also of those whose parent has ended
        if pid == child:
            os._exit(_code(status))


def _make_read_only() -> None:
    attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    _libc.syscall(_MOUNT_SETATTR, -100, b"/", _AT_RECURSIVE, attributes, len(attributes))
    # The sandbox makes control groups where it may, and shows devices, which users without rights can only as they are.
    attributes = struct.pack("QQQQ", 0, _READ_ONLY, 0, 0)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4]
        if place.startswith((_CONTROL_GROUPS, "/dev")):
            _libc.syscall(_MOUNT_SETATTR, -100, place.encode(), 0, attributes, len(attributes))


def _set_read_only(place: str) -> None:
    target = place.encode()
    _libc.mount(target, target, None, ctypes.c_ulong(_BIND), None)
    _libc.mount(None, target, None, ctypes.c_ulong(_REMOUNT | _BIND | _READ_ONLY), None)


def _execute(kind: str, command: list[str], limits: str) -> None:
    if kind == "nobody" and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    os.environ["OPENENV_ATTACK_LIMITS"] = limits
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(error, file=sys.stderr)
        os._exit(127)


def _die_with_parent() -> None:
    _libc.prctl(_SET_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL))


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
