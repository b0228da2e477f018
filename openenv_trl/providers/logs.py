"""Where the lines go that the servers write: the ``openenv_trl.providers`` logger, a file, and a callback."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from openenv_trl.errors import ConfigurationError

logger = logging.getLogger("openenv_trl.providers")


class LogSink:
    """Takes lines from several replicas' threads, and names the replica before each line of the file."""

    def __init__(self, path: Path | None, on_log: Callable[[str, str], None] | None) -> None:
        self._path = path
        self._on_log = on_log
        self._file: IO[str] | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Opens the file for appending, and makes its folder.

        Raises:
            ConfigurationError: It cannot be opened.
        """
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # What came in no encoding must not end the log.
                self._file = self._path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    f"log_path={str(self._path)!r} cannot be opened for writing: {error}. Name a file in a folder that "
                    "this user can write to, or leave log_path out."
                ) from error

    def line(self, replica_name: str, text: str) -> None:
        """Passes one line on. It raises nothing: whoever reads a server's lines must go on, or the server would block.

        A file that cannot be written any more, or a callback that raises, is reported once and then left alone.
        """
        logger.debug("%s: %s", replica_name, text)
        self._write(f"[{replica_name}] {text}\n")
        on_log = self._on_log
        if on_log is not None:
            try:
                on_log(replica_name, text)
            except BaseException:
                # The caller's own code, also where it raises what ends a program: this is a thread of the provider's.
                self._on_log = None
                logger.exception("on_log failed; it is not called again")

    def close(self) -> None:
        """Closes the file. Lines that still come are not written."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                try:
                    file.close()
                except OSError as error:
                    self._give_up(error)

    def _write(self, line: str) -> None:
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(line)
            except OSError as error:
                file, self._file = self._file, None
                with contextlib.suppress(OSError):  # it tries once more to write the same
                    file.close()
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        logger.error("log_path=%r cannot be written (%s); the servers go on without it", str(self._path), error)
