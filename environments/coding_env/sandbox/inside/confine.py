"""How a process leaves everything it could do harm to: by layers, each where the system has it.

`leave_namespaces`, `make_file_tree` and `become` make the session's own place; the keeper stays there.
`confine_worker` takes the rest away from the process that runs the agent's code.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import disk, kernel, landlock, seccomp

LAYERS = ("user", "processes", "files", "network", "landlock", "seccomp", "cgroup")
"""In the order they are put on. What each means is told by ``layers.py`` of the server's side."""

KEEPERS_AFTER = 100_000
"""Users between a session's and its keeper's, and so many sessions have different ones."""

_INSIDE_UID = 1000
_STAT_TO_MOUNT = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}  # ST_… to MS_…: nosuid to relatime
DEVICES = ("null", "zero", "full", "random", "urandom")


def join_groups(groups: list[int]) -> None:
    """Join control groups, for this process and all that it will start.

    Args:
        groups: Descriptors of their lists of processes; closed here.
    """
    for group in groups:
        try:
            os.write(group, b"0")
        finally:
            os.close(group)


def leave_namespaces(layers: frozenset[str], uid: int | None) -> None:
    """Leave the namespaces of the system. A new process namespace begins with the next fork.

    Args:
        layers: Those that are used.
        uid: The user that the session will have. None where the server is not root: then the rights to the other
            namespaces come from a user namespace.

    Raises:
        OSError: A layer that was asked for is not to be had.
    """
    if "files" not in layers:
        return
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    flags |= kernel.CLONE_NEWPID if "processes" in layers else 0
    flags |= kernel.CLONE_NEWNET if "network" in layers else 0
    if uid is not None:
        kernel.unshare(flags)
        return
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{_INSIDE_UID} {outside_uid} 1")
    _write("/proc/self/gid_map", f"{_INSIDE_UID} {outside_gid} 1")


def become(uid: int | None) -> None:
    """Take on the session's user, if it has one of its own."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def become_keeper(uid: int | None) -> None:
    """Take on the session's user for what it does, and for nothing that is done to it.

    It may signal the session's processes and reach their files; they may neither signal nor trace nor limit it.
    """
    if uid is not None:
        keeper = uid + KEEPERS_AFTER
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(keeper, uid, keeper)


def become_worker(uid: int | None) -> None:
    """Be the session's user altogether, after `become_keeper`."""
    if uid is not None:
        os.setresuid(uid, uid, uid)


def make_file_tree(root: str, readable: list[str], hidden: list[str], megabytes: int, uid: int | None) -> None:
    """Make a root of its own out of what may be read, with a workspace in memory, and go there.

    Args:
        root: An empty folder to mount it at.
        readable: Files and folders that are there, read-only, under their own names.
        hidden: Folders within them that look empty.
        megabytes: The size of the workspace, and of ``/tmp``.
        uid: The session's user, if it has one of its own.
    """
    owner = _INSIDE_UID if uid is None else uid
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    no_devices = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", root, "tmpfs", no_devices, "size=1m,nr_inodes=2k,mode=755")
    # Before what is shown, which may lie below /tmp.
    for name in ("workspace", "tmp"):
        os.mkdir(f"{root}/{name}")
        options = f"size={megabytes}m,nr_inodes={disk.MAX_FILES},mode=700,uid={owner},gid={owner}"
        kernel.mount("tmpfs", f"{root}/{name}", "tmpfs", no_devices, options)
    for path in (*readable, *(f"/dev/{name}" for name in DEVICES)):
        _show(root, path)
    for path in hidden:
        if os.path.isdir(root + path):
            kernel.mount("tmpfs", root + path, "tmpfs", no_devices | kernel.MS_RDONLY, "size=4k")
    os.symlink("/tmp", f"{root}/dev/shm")
    os.makedirs(f"{root}/etc", exist_ok=True)
    with open(f"{root}/etc/passwd", "w") as file:
        file.write(f"agent:x:{owner}:{owner}::/workspace:/bin/sh\n")
    os.chdir(root)
    kernel.pivot_root_here()
    kernel.mount("", "/", "", kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | no_devices)
    os.chdir("/workspace")


def _show(root: str, path: str) -> None:
    target = root + path
    if os.path.islink(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        return
    kernel.mount(path, target, "", kernel.MS_BIND | kernel.MS_REC)
    # A namespace may not drop what its parent's mount forbids.
    kept = sum(flag for stat, flag in _STAT_TO_MOUNT.items() if os.statvfs(target).f_flag & stat)
    devices = 0 if path.startswith("/dev/") else kernel.MS_NODEV
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | devices | kept
    kernel.mount("", target, "", flags & ~kernel.MS_RDONLY if path.startswith("/dev/") else flags)


def set_limits(limits: dict[str, Any], layers: frozenset[str], own_uid: bool, shared_processes: int | None) -> None:
    """Set what the kernel counts for each process: time, memory, file sizes, open files, processes.

    Args:
        limits: What a session may use.
        layers: Those that are used.
        own_uid: Whether the session has a user of its own.
        shared_processes: Processes of all sessions together, where they share a user; None for no limit.
    """
    memory = limits["memory_mb"] << 20
    wanted: dict[str, int] = {
        "RLIMIT_AS": memory,
        "RLIMIT_CPU": limits["cpu_s"],
        "RLIMIT_FSIZE": limits["file_mb"] << 20,
        "RLIMIT_NOFILE": limits["open_files"],
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_SIGPENDING": 128,
    }
    # It counts all processes and threads of a user. Where sessions share theirs with the server, it at least leaves the
    # server some.
    if own_uid or "files" in layers:
        wanted["RLIMIT_NPROC"] = limits["processes"] + (0 if own_uid else 1)  # and the keeper, if it counts as theirs
    elif shared_processes is not None:
        wanted["RLIMIT_NPROC"] = shared_processes
    for name, value in wanted.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS knows some and sets none
            # The soft limit of time one second lower, so that the end is told by a signal of its own.
            resource.setrlimit(kind, (max(1, allowed - 1) if name == "RLIMIT_CPU" else allowed, allowed))


def confine_worker(layers: frozenset[str], own_uid: bool, readable: list[str], writable: list[str]) -> None:
    """Take every right away that the agent's code is not to have. There is no way back."""
    if not kernel.IS_LINUX:
        return
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if "landlock" in layers:
        landlock.restrict(readable, writable)
    if "seccomp" in layers:
        seccomp.install(
            seccomp.program(
                own_processes="processes" in layers or own_uid, own_network="network" in layers, own_pid=os.getpid()
            )
        )


def probe(config: dict[str, Any], uid: int | None, groups: list[int]) -> dict[str, Any]:
    """Find out which layers there are, by putting them on in processes made for it.

    Args:
        config: What all sessions have in common.
        uid: The user that a session would have, if it would have one of its own.
        groups: Descriptors by which a process joins a control group.

    Returns:
        ``layers``: those that work here. ``missing``: why the others do not, by name.
    """
    root, readable, hidden, off = config["root"], config["readable"], config["hidden"], frozenset(config["off"])
    found: set[str] = set()
    missing: dict[str, str] = dict.fromkeys(sorted(off), "switched off")

    def test(name: str, function: Callable[[], None]) -> None:
        if name not in off:
            error = _error_in_child(function)
            if error is None:
                found.add(name)
            else:
                missing[name] = error

    if not kernel.IS_LINUX:
        return {"layers": [], "missing": dict.fromkeys(LAYERS, f"not on {sys.platform}")}

    def with_layers(*names: str) -> Callable[[], None]:
        return lambda: leave_namespaces(frozenset(names), uid)

    def user() -> None:
        if uid is None:
            raise OSError(0, "the server is not root, so all sessions have its user")
        become(uid)

    def files() -> None:
        leave_namespaces(frozenset({"files"}), uid)
        make_file_tree(root, readable, hidden, 1, uid)
        become(uid)
        os.listdir(sys.prefix)

    test("user", user)
    test("files", files)
    if "files" in found:
        test("processes", with_layers("files", "processes"))
        test("network", with_layers("files", "network"))
    else:
        for name in ("processes", "network"):
            missing.setdefault(name, "needs the layer files")

    def landlock_works() -> None:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict(readable, [])

    def seccomp_works() -> None:
        if not seccomp.is_known():
            raise OSError(0, f"the system calls of {kernel.MACHINE} are not known")
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.install(seccomp.program(own_processes=False, own_network=False, own_pid=os.getpid()))

    def joins_groups() -> None:
        if not groups:
            raise OSError(0, config["no_groups"])
        join_groups(groups)

    test("landlock", landlock_works)
    test("seccomp", seccomp_works)
    test("cgroup", joins_groups)
    for group in groups:
        os.close(group)
    ordered = [name for name in LAYERS if name in found]
    return {"layers": ordered, "missing": missing, "landlock_version": landlock.version()}


def _error_in_child(function: Callable[[], None]) -> str | None:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            function()
        except BaseException as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        os.write(theirs, text.encode()[:1000] or b"\0")
        os._exit(0)
    os.close(theirs)
    answer = b"".join(_pieces(ours))
    os.close(ours)
    os.waitpid(pid, 0)
    return None if answer == b"\0" else answer.decode(errors="replace") or "the process ended"


def _pieces(descriptor: int) -> Iterator[bytes]:
    while piece := os.read(descriptor, 4096):
        yield piece


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
