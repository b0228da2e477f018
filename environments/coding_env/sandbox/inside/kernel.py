"""The few system calls of Linux that Python has no function for, by ctypes.

Source: the manual pages of section 2, and ``asm/unistd.h`` of Linux for the numbers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

IS_LINUX = sys.platform == "linux"
MACHINE = platform.machine()

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    """Make a system call; integers are passed as longs, the rest as ctypes passes it.

    Raises:
        OSError: It failed.
    """
    values = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *values), f"system call {number}")


def prctl(option: int, value: int = 0) -> None:
    """Change a property of this process."""
    zeros = (ctypes.c_ulong(0),) * 3
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), *zeros), f"prctl {option}")


def unshare(flags: int) -> None:
    """Leave the namespaces of the flags for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare {flags:#x}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system, or bind a path."""
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None), f"mount at {target}")


def unmount(target: str) -> None:
    """Take a mount away, also one in use."""
    _check(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"unmount {target}")


def pivot_root_here() -> None:
    """Make the working directory, which must be a mount, the root, and the old root gone."""
    syscall(_PIVOT_ROOT[MACHINE], ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    unmount(".")
    os.chdir("/")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_capabilities() -> None:
    """Give every capability up, for this process and all that it will start."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # beyond the last one, or nothing to drop
            continue
    header = _CapabilityHeader(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    syscall(_CAPSET[MACHINE], ctypes.byref(header), ctypes.byref(nothing))
