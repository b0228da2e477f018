"""Several files as one text, so that a reply about files is as quick to read as it is long.

JSON of many small values takes a hundred times as long to read as one text of that length, and holds up everything
else in its reader meanwhile.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

_LENGTHS = struct.Struct("!II")


def bundled(files: list[tuple[bytes, bytes]]) -> str:
    """Return files, each a path and what is told of it, as one text."""
    parts = [_LENGTHS.pack(len(path), len(told)) + path + told for path, told in files]
    return base64.b64encode(b"".join(parts)).decode("ascii")


def unbundled(text: Any, most: int) -> list[tuple[str, bytes]]:
    """Return the files of a text, by whomever it was made; as many as it holds whole.

    Args:
        text: As `bundled` made it, or anything.
        most: Files that are returned at most.
    """
    try:
        data = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except ValueError:
        return []
    files: list[tuple[str, bytes]] = []
    at = 0
    while len(files) < most and at + _LENGTHS.size <= len(data):
        path, told = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        if at + path + told > len(data):
            break
        files.append((data[at : at + path].decode("utf-8", "replace"), data[at + path : at + path + told]))
        at += path + told
    return files
