"""Which of the system's files a session sees."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
_ETC = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/alternatives")
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})


def interpreter() -> str:
    """The Python that sessions run: this one's, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def readable() -> list[str]:
    """Files and folders that a session sees: the system's programs and libraries, and Python."""
    prefixes = {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}
    inside = [prefix for prefix in sorted(prefixes) if prefix != "/" and not _below(prefix, _SYSTEM)]
    return [path for path in (*_SYSTEM, *_ETC, *inside) if os.path.lexists(path)]


def hidden(packages: Sequence[str]) -> list[str]:
    """Folders among them that look empty: Python's installed packages, and those of the system's Python.

    Args:
        packages: Folders of packages that sessions may import from, which stay.
    """
    found: list[str] = []
    for library in _libraries():
        for folder in sorted(_PACKAGE_FOLDERS):
            path = os.path.join(library, folder)
            if os.path.isdir(path) and not any(_below(kept, [path]) for kept in packages):
                found.append(os.path.realpath(path))
    return found


def landlock_readable() -> list[str]:
    """What `readable` means where nothing can be hidden in it: the standard library part by part."""
    allowed = [path for path in ("/lib", "/lib64", "/usr/lib", "/bin", "/usr/bin", *_ETC) if os.path.exists(path)]
    allowed += ["/usr/share/zoneinfo", "/usr/share/locale", interpreter()]
    standard = os.path.realpath(sysconfig.get_path("stdlib"))
    # /usr/lib holds the system's Python: with its packages, so only what is beside them.
    for parent in {os.path.dirname(standard), "/usr/lib"} & set(allowed):
        allowed.remove(parent)
        allowed += _children(parent, {os.path.basename(standard), *_PACKAGE_FOLDERS, "python3"})
    allowed += _children(standard, _PACKAGE_FOLDERS)
    libpython = os.path.dirname(standard)
    allowed += [entry for entry in _children(libpython, set()) if os.path.basename(entry).startswith("libpython")]
    return allowed


def _libraries() -> list[str]:
    standard = os.path.realpath(sysconfig.get_path("stdlib"))
    others = ["/usr/lib/python3", os.path.dirname(standard)]
    for parent in ("/usr/local/lib", "/usr/lib"):
        others += [entry for entry in _children(parent, set()) if os.path.basename(entry).startswith("python")]
    return sorted({standard, *others})


def _children(folder: str, without: Iterable[str]) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name not in set(without)]
    except OSError:
        return []


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
