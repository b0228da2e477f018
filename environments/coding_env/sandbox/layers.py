"""What the sandbox is worth on this system: which layers hold, and in one word.

The layers, and what each is good for:

- ``user``: every session has a user of its own (only where the server is root).
- ``files``: a file tree of its own, read-only but for a workspace in memory (user and mount namespaces).
- ``processes``: it sees and signals no process but its own, and all of them die together (a process namespace).
- ``network``: a network without any interface that is up (a network namespace).
- ``landlock``: the kernel's list of what may be opened, beside the file tree or in its place.
- ``bubblewrap``: that program started the sandbox. Beside ``files``, by which every session has namespaces of its own;
  without it sessions share one file tree without the server's files, one list of processes and one dead network.
- ``cgroup``: memory and processes are also counted for the session as a whole.
- ``seccomp``: system calls that only an attack needs are refused. Without ``processes`` and ``user``, also starting
  processes; without ``network``, also sockets.

Limits by the kernel, ``no_new_privs``, an empty environment and the kill of all that was started are always there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class Level(IntEnum):
    """How much the sandbox holds back. See the package's README for what each leaves open."""

    NONE = 0
    """Limits only: code can read, signal and connect to what the server's user can."""
    WEAK = 1
    """Code cannot start processes, connect anywhere or signal others, but can read files that the server's user can."""
    PARTIAL = 2
    """Files, processes and network of others are out of reach, by fewer layers than there could be."""
    STRONG = 3
    """Every session is alone with a file tree, processes and network of its own, and system calls are filtered."""


class SandboxReport(BaseModel):
    """Which layers hold here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    layers: list[str]
    """Those that were put on in a trial."""
    missing: dict[str, str]
    """Why the others were not."""
    landlock_version: int = 0
    """Version of Landlock's interface; 0 for none."""

    @property
    def level(self) -> Level:
        """The layers in one word."""
        found = set(self.layers)
        if {"files", "processes", "network", "seccomp"} <= found:
            return Level.STRONG
        files = bool(found & {"files", "landlock", "bubblewrap"})
        if files and "seccomp" in found:
            return Level.PARTIAL
        return Level.WEAK if "seccomp" in found else Level.NONE

    def described(self) -> dict[str, Any]:
        """Level, layers and what is missing, for people and programs."""
        return {
            "level": self.level.name.lower(),
            "layers": self.layers,
            "missing": self.missing,
            "landlock_version": self.landlock_version,
        }

    def sentence(self) -> str:
        """The same in a sentence."""
        text = f"Sandbox: {self.level.name.lower()} ({', '.join(self.layers) or 'no layers'})."
        if self.missing:
            text += " Missing: " + "; ".join(f"{name} ({why})" for name, why in self.missing.items()) + "."
        return text
