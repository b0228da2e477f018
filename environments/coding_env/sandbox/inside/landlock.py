"""Landlock: the kernel's own list of what a process may open, for it and all that it starts.

Source: ``Documentation/userspace-api/landlock.rst`` of Linux. Versions of the interface: 1 files, 2 moving between
folders, 3 truncation, 4 TCP, 5 device ioctls, 6 signals and abstract sockets across the border.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from .kernel import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_RIGHTS_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_RIGHTS = (1 << 16) - 1
_TCP = 3
_SCOPES = 3  # abstract sockets and signals


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Which version of Landlock the kernel has; 0 for none."""
    try:
        return syscall(_CREATE_RULESET, 0, 0, 1)
    except OSError:
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Allow this process the paths and what is below them, and nothing else; for ever.

    Args:
        readable: What may be read and executed. Paths that are not there are left out.
        writable: What may be changed too, and where files may be made.

    Raises:
        OSError: The kernel has no Landlock, or refuses.
    """
    abi = version()
    handled = _RIGHTS_OF_VERSION.get(abi, _ALL_RIGHTS)
    ruleset = _Ruleset(handled, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = syscall(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    try:
        for paths, rights in ((readable, _READ), (writable, handled)):
            for path in paths:
                _allow(rules, path, rights & handled)
        syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = rights if os.path.isdir(path) else rights & _ON_FILES
        syscall(_ADD_RULE, rules, 1, ctypes.byref(_PathRule(allowed, parent)), 0)
    finally:
        os.close(parent)
