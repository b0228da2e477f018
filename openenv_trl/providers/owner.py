"""Whose a server is: written on each container, service, pod and process, so that what was left behind is found."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass

PREFIX = "openenv-trl."
OWNER_LABEL = f"{PREFIX}owner"
"""The label with the owner's id. Whatever carries it was started by this package."""
PID_LABEL = f"{PREFIX}owner-pid"
HOST_LABEL = f"{PREFIX}owner-host"
STARTED_LABEL = f"{PREFIX}owner-started"
NAME_LABEL = f"{PREFIX}name"
OWNER_VARIABLE = "OPENENV_TRL_OWNER"
PID_VARIABLE = "OPENENV_TRL_OWNER_PID"
LEASE_LABEL = f"{PREFIX}lease-s"


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

    def labels(self, name: str, lease_s: float | None = None) -> dict[str, str]:
        """The labels of one thing that it owns.

        Args:
            name: The replica's name.
            lease_s: For how long the thing outlives its owner; None where it has no lease.
        """
        labels = {
            OWNER_LABEL: self.id,
            PID_LABEL: str(self.pid),
            HOST_LABEL: self.host,
            STARTED_LABEL: str(self.started),
            NAME_LABEL: name,
        }
        return labels if lease_s is None else {**labels, LEASE_LABEL: f"{lease_s:g}"}

    def variables(self) -> dict[str, str]:
        """Environment variables that say whose a process is; whatever it starts has them too."""
        return {OWNER_VARIABLE: self.id, PID_VARIABLE: str(self.pid)}


_lock = threading.Lock()
_owner: Owner | None = None


def this_owner() -> Owner:
    """This process, as an owner. A forked copy of it is another one."""
    global _owner
    with _lock:
        if _owner is None or _owner.pid != os.getpid():
            _owner = Owner(uuid.uuid4().hex, os.getpid(), socket.gethostname(), int(time.time()))
        return _owner


def _forget_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
