"""Tells the user's code of lines and exits on a thread of its own, so that nothing there holds a provider up."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread

from openenv_trl.providers.base import ReplicaExit
from openenv_trl.providers.logs import LogSink, logger

_MOST_LINES = 10_000
_MOST_CHARACTERS = 8 * 1024**2
_THREAD_WAITS_S = 5.0


class Outlet:
    """Where one provider's lines and exits go: log, file and the user's callbacks.

    Whoever hands something over never waits. Lines that come faster than they are taken are left out and counted;
    exits are kept, and go before the lines.

    Args:
        name: The thread's name; it runs while there is something to tell, and a little longer.
        on_exit: Called with each exit.
        on_log: Called with the replica's name and one line.
    """

    def __init__(
        self, name: str, on_exit: Callable[[ReplicaExit], None] | None, on_log: Callable[[str, str], None] | None
    ) -> None:
        self._name = name
        self._on_exit = on_exit
        self._on_log = on_log
        self._changed = threading.Condition()
        self._exits: deque[ReplicaExit] = deque()
        self._batches: deque[tuple[LogSink, str, tuple[str, ...] | None]] = deque()
        """With None for lines the sink is closed."""
        self._lines = 0
        self._characters = 0
        self._left_out: dict[str, int] = {}
        self._sink = LogSink(None, on_log)
        self._heard = on_log is not None
        self._busy = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def open(self, path: Path | None) -> None:
        """Open a file for the lines.

        Raises:
            ConfigurationError: It cannot be opened.
        """
        if self._pid != os.getpid():  # threads do not survive a fork, and locks may be held for ever in the copy
            self._pid, self._changed, self._thread, self._busy = os.getpid(), threading.Condition(), None, False
        sink = LogSink(path, self._on_log)
        sink.open()
        self._sink, self._heard = sink, path is not None or self._on_log is not None

    def line(self, replica_name: str, *lines: str) -> None:
        """Hand over what a replica wrote."""
        if not lines or not (self._heard or logger.isEnabledFor(logging.DEBUG)):
            return
        with self._changed:
            room = _MOST_LINES - self._lines if self._characters < _MOST_CHARACTERS else 0
            if room > 0:
                self._tell_what_is_left_out(replica_name)
                self._add(replica_name, lines[:room])
            if len(lines) > room:
                self._left_out[replica_name] = self._left_out.get(replica_name, 0) + len(lines) - max(room, 0)
            self._wake()

    def exit(self, gone: ReplicaExit) -> None:
        """Hand over an exit."""
        if self._on_exit is not None:
            with self._changed:
                self._exits.append(gone)
                self._wake()

    def close(self) -> None:
        """Close the file, after the lines that were handed over. Does not wait for it."""
        with self._changed:
            for name in list(self._left_out):
                self._tell_what_is_left_out(name)
            self._batches.append((self._sink, "", None))
            self._sink, self._heard = LogSink(None, self._on_log), self._on_log is not None
            self._wake()

    async def told(self, timeout_s: float) -> None:
        """Wait until all that was handed over has been told, but not for ever, and not in a callback."""
        if not self._idle() and threading.current_thread() is not self._thread:
            await anyio.to_thread.run_sync(self._drain, timeout_s, limiter=anyio.CapacityLimiter(1))

    def _drain(self, timeout_s: float) -> None:
        with self._changed:
            if not self._changed.wait_for(self._idle, timeout_s):
                logger.warning(
                    "on_exit or on_log takes longer than %g s; it goes on although the provider is stopped", timeout_s
                )

    def _idle(self) -> bool:
        return not (self._busy or self._exits or self._batches)

    def _add(self, replica_name: str, lines: tuple[str, ...]) -> None:
        self._batches.append((self._sink, replica_name, lines))
        self._lines += len(lines)
        self._characters += sum(map(len, lines))

    def _tell_what_is_left_out(self, replica_name: str) -> None:
        count = self._left_out.pop(replica_name, 0)
        if count:
            self._add(replica_name, (f"… {count} lines left out: they came faster than they were taken",))

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    # On the thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                if self._idle():
                    for name in list(self._left_out):
                        self._tell_what_is_left_out(name)
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: self._exits or self._batches, _THREAD_WAITS_S):
                    self._thread = None
                    return
                self._busy = True
                batch = None if self._exits else self._batches.popleft()
            if batch is None:
                self._tell_exits()
            else:
                self._tell_lines(*batch)

    def _tell_exits(self) -> None:
        while self._exits:
            gone = self._exits.popleft()
            assert self._on_exit is not None
            try:
                self._on_exit(gone)
            except BaseException:  # the caller's own code, also where it raises what ends a program
                logger.exception("on_exit failed")

    def _tell_lines(self, sink: LogSink, replica_name: str, lines: tuple[str, ...] | None) -> None:
        if lines is None:
            sink.close()
            return
        for line in lines:
            if self._exits:
                self._tell_exits()
            try:
                sink.line(replica_name, line)
            except BaseException:  # a logging handler's
                logger.exception("a line of %s could not be told", replica_name)
            with self._changed:
                self._lines -= 1
                self._characters -= len(line)
