"""Whose a server is: written on each container, service, pod and process, so that what was left behind is found."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from typing_extensions import Self

PREFIX = "openenv-trl."
OWNER_LABEL = f"{PREFIX}owner"
"""The label with the owner's id. Whatever carries it was started by this package."""
PID_LABEL = f"{PREFIX}owner-pid"
HOST_LABEL = f"{PREFIX}owner-host"
STARTED_LABEL = f"{PREFIX}owner-started"
PLACE_LABEL = f"{PREFIX}owner-place"
PROCESS_LABEL = f"{PREFIX}owner-process"
NAME_LABEL = f"{PREFIX}name"
THING_LABEL = f"{PREFIX}thing"
"""The label with the name that a thing was given at its engine, which labels that an image passes on do not fit."""
OWNER_VARIABLE = "OPENENV_TRL_OWNER"
PID_VARIABLE = "OPENENV_TRL_OWNER_PID"
PROCESS_VARIABLE = "OPENENV_TRL_OWNER_PROCESS"
PLACE_VARIABLE = "OPENENV_TRL_OWNER_PLACE"
LEASE_LABEL = f"{PREFIX}lease-s"
_UNKNOWN = "unknown"


class OwnerState(Enum):
    """Whether an owner lives."""

    ALIVE = "alive"
    DEAD = "dead"
    ELSEWHERE = "elsewhere"
    """It is, or was, on another machine, or in another container: nothing can be told of it from here."""
    UNKNOWN = "unknown"
    """There is a process with its id, which cannot be seen from here, as under hidepid: it may be the owner."""


@dataclass(frozen=True)
class Owner:
    """A process that starts servers."""

    id: str
    """A name that no other process has or had."""
    pid: int
    host: str
    """The name of the machine that it runs on."""
    started: int
    """When it began to own something, in seconds since 1970."""

    place: str = ""
    """Which process ids its own is one of: a machine's since its last start, or a container's. Empty if unknown."""
    process: str = ""
    """What tells its process from a later one with the same id. Empty if unknown."""

    def labels(self, name: str, lease_s: float | None = None, thing: str | None = None) -> dict[str, str]:
        """The labels of one thing that it owns.

        Args:
            name: The replica's name.
            lease_s: For how long the thing outlives its owner; None where it has no lease.
            thing: What the engine is to call the thing, where it has labels of its image too.
        """
        labels = {
            OWNER_LABEL: self.id,
            PID_LABEL: str(self.pid),
            HOST_LABEL: self.host,
            STARTED_LABEL: str(self.started),
            PLACE_LABEL: self.place,
            PROCESS_LABEL: self.process,
            NAME_LABEL: name,
        }
        if thing is not None:
            labels[THING_LABEL] = thing
        return labels if lease_s is None else {**labels, LEASE_LABEL: f"{lease_s:g}"}

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Self | None:
        """The owner that a thing's labels tell of; None where the thing is not of this package."""
        if not labels.get(OWNER_LABEL):
            return None
        return cls(
            labels[OWNER_LABEL],
            _number(labels.get(PID_LABEL)),
            labels.get(HOST_LABEL, ""),
            _number(labels.get(STARTED_LABEL)),
            labels.get(PLACE_LABEL, ""),
            labels.get(PROCESS_LABEL, ""),
        )

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self | None:
        """The owner that a process's environment variables tell of; None where it is not of this package."""
        if not variables.get(OWNER_VARIABLE):
            return None
        pid, process = _number(variables.get(PID_VARIABLE)), variables.get(PROCESS_VARIABLE, "")
        # What runs here was started here: the variables are of processes, and containers have labels.
        return cls(variables[OWNER_VARIABLE], pid, socket.gethostname(), 0, variables.get(PLACE_VARIABLE, ""), process)

    @property
    def state(self) -> OwnerState:
        """Whether it lives, as far as can be told from here."""
        if self.place and this_place():
            if self.place != this_place():
                return OwnerState.DEAD if self._was_before_a_restart() else OwnerState.ELSEWHERE
        elif self.host != socket.gethostname():
            return OwnerState.ELSEWHERE
        return state_of_process(self.pid, self.process)

    def _was_before_a_restart(self) -> bool:
        """Whether this machine was started again since: then none of its processes is left."""
        machine, _, namespace = self.place.split(".") if self.place.count(".") == 2 else ("", "", "")
        machine_here, _, namespace_here = this_place().split(".")
        known = machine not in ("", _UNKNOWN)
        return known and (machine, namespace, self.host) == (machine_here, namespace_here, socket.gethostname())

    def variables(self) -> dict[str, str]:
        """Environment variables that say whose a process is; whatever it starts has them too."""
        return {
            OWNER_VARIABLE: self.id,
            PID_VARIABLE: str(self.pid),
            PROCESS_VARIABLE: self.process,
            PLACE_VARIABLE: self.place,
        }


_lock = threading.Lock()
_owner: Owner | None = None


def this_owner() -> Owner:
    """This process, as an owner. A forked copy of it is another one."""
    global _owner
    with _lock:
        if _owner is None or _owner.pid != os.getpid():
            pid = os.getpid()
            _owner = Owner(
                uuid.uuid4().hex, pid, socket.gethostname(), int(time.time()), this_place(), process_mark(pid)
            )
        return _owner


def this_place() -> str:
    """Which process ids those here are: machine, its last start, process namespace; empty where they are not Linux's.

    A container has a namespace of its own, and may have the name of its host.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    try:
        machine = Path("/etc/machine-id").read_bytes().strip()
    except OSError:
        machine = b""
    # Not the id itself, which is not to be told to other machines.
    hashed = hashlib.sha256(b"openenv-trl " + machine).hexdigest()[:12] if machine else _UNKNOWN
    return f"{hashed}.{boot[:12]}.{namespace}"


def process_mark(pid: int) -> str:
    """When a process was started, which tells it from a later one with its id; empty where no such process is seen."""
    return look_at_process(pid) or ""


def look_at_process(pid: int) -> str | None:
    """When a process was started; empty where it has ended and nobody has collected it, None where it is not seen."""
    if pid <= 0:
        return ""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    import psutil

    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def process_exists(pid: int) -> bool:
    """Whether there is a process with an id, whoever's it is and whether or not it can be looked at."""
    if sys.platform == "win32":
        import psutil

        return psutil.pid_exists(pid)  # there a signal would end it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # another user's
    return True


def state_of_process(
    pid: int,
    mark: str,
    look: Callable[[int], str | None] = look_at_process,
    exists: Callable[[int], bool] = process_exists,
) -> OwnerState:
    """Whether a process lives. One that cannot be seen need not be dead: /proc may be mounted with hidepid.

    Args:
        pid: Its id.
        mark: When it was started, as `process_mark` says it; empty if unknown.
        look: Looks at it.
        exists: Whether there is one with its id.
    """
    there = look(pid)
    if there is None:
        return OwnerState.UNKNOWN if exists(pid) else OwnerState.DEAD
    return OwnerState.ALIVE if there and there == (mark or there) else OwnerState.DEAD


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _forget_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
