"""The file tools. They run in the worker, with its rights, so that no link leads them out of the session."""

from __future__ import annotations

import base64
import errno
import os
import stat
from typing import Any

from .bundle import bundled
from .console import Console

MAX_LISTED = 1000
"""Files that are listed or exported at most."""
_MAX_PATHS = 1 << 17  # bytes of their paths together
_MAX_EXPORTED = 1 << 18
_MAX_ERROR = 1000


def answer(console: Console, message: dict[str, Any]) -> dict[str, Any]:
    """Write, read or list files of the workspace; an error comes back as text."""
    del console
    try:
        if message["op"] == "write":
            return _write(message["path"], message["text"])
        if message["op"] == "read":
            return _read(message["path"], message["limit"])
        if message["op"] == "list":
            return _list()
        if message["op"] == "export":
            return _export()
    except (OSError, ValueError, RecursionError) as error:  # folders may be nested deeper than Python walks
        return {"error": f"{type(error).__name__}: {error}"[:_MAX_ERROR]}
    return {"error": f"unknown operation {message['op']!r}"}


def _write(path: str, text: str) -> dict[str, Any]:
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="", opener=_open_regular) as file:
        file.write(text)
    return {}


def _open_regular(path: str, flags: int) -> int:
    """Open a file, and nothing that would be waited for, such as a pipe."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads
            raise ValueError(f"{path!r} is no regular file") from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a folder is refused by open itself, in Python's own words
        os.close(descriptor)
        raise ValueError(f"{path!r} is no regular file")
    return descriptor


def _read(path: str, limit: int) -> dict[str, Any]:
    data = _content(path, limit + 1)
    return {"text": base64.b64encode(data[:limit]).decode("ascii"), "truncated": len(data) > limit}


def _content(path: str, limit: int) -> bytes:
    with open(path, "rb", opener=_open_regular) as file:
        return file.read(limit)


def _walk() -> tuple[list[tuple[str, int]], bool]:
    """Paths and sizes of the workspace's files, and whether there are more."""
    found: list[tuple[str, int]] = []
    left = _MAX_PATHS
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name))
            left -= len(os.fsencode(path))
            if len(found) == MAX_LISTED or left < 0:
                return found, True
            found.append((path, os.lstat(path).st_size))
    return found, False


def _list() -> dict[str, Any]:
    found, truncated = _walk()
    return {"files": bundled([(os.fsencode(path), b"%d" % size) for path, size in found]), "truncated": truncated}


def _export() -> dict[str, Any]:
    """The workspace's modules, for a solution that imports others."""
    exported: list[tuple[bytes, bytes]] = []
    left = _MAX_EXPORTED
    for path, size in _walk()[0]:
        if path.endswith(".py") and size <= left and os.path.isfile(path):
            exported.append((os.fsencode(path), _content(path, size)))
            left -= size
    return {"files": bundled(exported)}
