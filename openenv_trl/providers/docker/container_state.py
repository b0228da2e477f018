"""What is known of one container from its output and the engine's events. No task, no clock."""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field

import anyio

ENGINE_WENT = "the Docker engine was stopped or restarted"
_KEPT_LINES = 1000
_LONGEST_LINE = 16_384
_ENDING = {str(int(each)) for each in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGQUIT)}


class OutputLines:
    """Cuts the pieces of a container's standard output and error into lines."""

    def __init__(self) -> None:
        self._rest: dict[int, bytes] = {}

    def feed(self, stream: int, data: bytes) -> list[str]:
        """Return the lines that are whole now; what is too long for a line is cut into several.

        Args:
            stream: 1 for standard output, 2 for standard error.
            data: What came of it.
        """
        whole, newline, rest = (self._rest.get(stream, b"") + data).rpartition(b"\n")
        # At once: a server may write a hundred thousand lines in the time that one call for each would take.
        lines = whole.decode("utf-8", "replace").split("\n") if newline else []
        if b"\r" in whole:
            lines = [line.rstrip("\r") for line in lines]
        while len(rest) > _LONGEST_LINE:
            lines.append(_text(rest[:_LONGEST_LINE]))
            rest = rest[_LONGEST_LINE:]
        self._rest[stream] = rest
        return lines

    def end(self) -> list[str]:
        """Return the lines that were not ended."""
        lines = [_text(rest) for rest in self._rest.values() if rest]
        self._rest.clear()
        return lines


@dataclass(eq=False)
class ContainerState:
    """One container of a provider."""

    id: str
    name: str
    """The replica's name."""
    memory: int | None = None
    """Its memory limit in bytes."""
    base_url: str = ""
    output: deque[str] = field(default_factory=lambda: deque[str](maxlen=_KEPT_LINES))
    died: anyio.Event = field(default_factory=anyio.Event)
    output_over: anyio.Event = field(default_factory=anyio.Event)
    """Nothing more comes of its output on the connection that there was."""
    gone: anyio.Event = field(default_factory=anyio.Event)
    """The engine has removed it, with its anonymous volumes."""
    exit_code: int | None = None
    reason: str = ""
    volumes: tuple[str, ...] = ()
    """The names of its anonymous volumes."""
    removing: bool = False
    """Whether its provider ends it."""
    ended_from_outside: bool = False
    """Whether somebody has ended it through the engine, or the engine itself has."""
    _starved: bool = False

    def take_event(self, action: str, attributes: dict[str, str]) -> bool:
        """Take one event of the engine.

        Args:
            action: ``oom``, ``kill``, ``die`` or ``destroy``.
            attributes: What the engine says with it.

        Returns:
            Whether the container has died just now.
        """
        if action == "oom":
            self._starved = True
        elif action == "kill" and attributes.get("signal") in _ENDING:
            self.ended_from_outside = True
        elif action == "destroy":
            self.gone.set()
        elif action == "die" and not self.died.is_set():
            self.exit_code = int(attributes.get("exitCode", -1))
            self.reason = self._reason(self.exit_code)
            self.died.set()
            return True
        return False

    def lose(self, reason: str) -> bool:
        """Take note that it has ended without an event; returns whether that is new."""
        if self.died.is_set():
            return False
        self.reason = reason
        self.died.set()
        return True

    def wrote(self, lines: list[str]) -> None:
        """Keep the last lines that it wrote."""
        self.output.extend(lines[-_KEPT_LINES:])

    def tail(self, lines: int = 60) -> str:
        """The last lines that it wrote."""
        return "\n".join(list(self.output)[-lines:])

    def _reason(self, code: int) -> str:
        if code == 128 + signal.SIGKILL and self._starved:
            limit = f"limit {size(self.memory)}; raise memory" if self.memory else "the engine's machine has no more"
            return f"out of memory ({limit})"
        if self.ended_from_outside:
            return f"exit code {code}: somebody ended it through the Docker engine"
        if code == 128 + signal.SIGKILL:
            hint = f", perhaps for want of memory, of which it may use {size(self.memory)}" if self.memory else ""
            return f"exit code {code}: it was killed{hint}"
        if 128 < code < 128 + signal.NSIG and code - 128 in set(signal.Signals):
            return f"exit code {code} ({signal.Signals(code - 128).name})"
        return ""


def size(count: int | None) -> str:
    """A number of bytes as a person writes it: ``64 MiB``."""
    if count is None:
        return "no limit"
    for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} B"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")
