"""What a worker process knows of its place: its number, and the ways to its parent and to the other workers.

The parent writes it into an environment variable. The worker takes it out again before it imports the application, so
that no process which the application starts takes itself for the worker.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path

from openenv_trl.server.lease import LeaseTerms

VARIABLE = "OPENENV_TRL_WORKER_PLACE"

_taken: WorkerPlace | None = None


@dataclass(frozen=True)
class WorkerPlace:
    """One worker among several.

    Attributes:
        index: The worker's number, from 0.
        count: How many workers there are.
        family: What the workers' own addresses begin with; see `address_of`.
        ledger_fd: The file of the memory that all share.
        control_fd: The socket to the parent.
        parent: The parent's process id.
        lease: The server's lease, if it has one.
        lease_fd: The file in which its renewals are written down.
    """

    index: int
    count: int
    family: str
    ledger_fd: int
    control_fd: int
    parent: int
    lease: LeaseTerms | None = None
    lease_fd: int = -1

    def variable(self) -> Mapping[str, str]:
        """Return the environment variable that tells a process of its place."""
        return {VARIABLE: json.dumps(asdict(self))}


def take_place(environment: MutableMapping[str, str] | None = None) -> WorkerPlace | None:
    """Return this process's place and keep it for `current_place`; None where it is no worker of ours."""
    global _taken
    text = (os.environ if environment is None else environment).pop(VARIABLE, None)
    if text is None:
        _taken = None
        return None
    fields = json.loads(text)
    lease = fields.pop("lease", None)
    _taken = WorkerPlace(**fields, lease=None if lease is None else LeaseTerms(**lease))
    return _taken


def current_place() -> WorkerPlace | None:
    """Return the place that this process took, if any."""
    return _taken


def address_of(family: str, index: int) -> str:
    """Return the address at which a worker takes what its siblings hand over.

    On Linux it is an abstract one: no file that could be left behind. Elsewhere it is a path.
    """
    if sys.platform.startswith("linux"):
        return f"\0{family}-{index}"
    return str(Path(family) / f"worker-{index}")
