"""Where the lines go that the servers write: the ``openenv_trl.providers`` logger, a file, and a callback."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

logger = logging.getLogger("openenv_trl.providers")


class LogSink:
    """Takes lines from several replicas' threads, and names the replica before each line of the file."""

    def __init__(self, path: Path | None, on_log: Callable[[str, str], None] | None) -> None:
        self._path = path
        self._on_log = on_log
        self._file: IO[str] | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Opens the file for appending, and makes its folder."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8", buffering=1)

    def line(self, replica_name: str, text: str) -> None:
        """Passes one line on."""
        logger.debug("%s: %s", replica_name, text)
        with self._lock:
            if self._file is not None:
                self._file.write(f"[{replica_name}] {text}\n")
        if self._on_log is not None:
            try:
                self._on_log(replica_name, text)
            except Exception:
                # The caller's own code: its mistake must not stop the reading of the log, which would block the server.
                logger.exception("on_log failed; it is not called again")
                self._on_log = None

    def close(self) -> None:
        """Closes the file. Lines that still come are not written."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
