"""The file tools. They run in the worker, with its rights, so that no link leads them out of the session."""

from __future__ import annotations

import os
from typing import Any

from .console import Console

_MAX_LISTED = 1000
_MAX_EXPORTED = 1 << 18


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
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": f"unknown operation {message['op']!r}"}


def _write(path: str, text: str) -> dict[str, Any]:
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)
    return {}


def _read(path: str, limit: int) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    return {"text": data[:limit].decode("utf-8", "replace"), "truncated": len(data) > limit}


def _list() -> dict[str, Any]:
    listed: list[list[Any]] = []
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(folder, name)
            if len(listed) == _MAX_LISTED:
                return {"files": listed, "truncated": True}
            listed.append([os.path.relpath(path), os.lstat(path).st_size])
    return {"files": listed, "truncated": False}


def _export() -> dict[str, Any]:
    """The workspace's modules, for a solution that imports others."""
    exported: dict[str, str] = {}
    left = _MAX_EXPORTED
    for path, size in _list()["files"]:
        if path.endswith(".py") and size <= left and os.path.isfile(path):
            exported[path] = _read(path, size)["text"]
            left -= size
    return {"files": exported}
