"""The process that all sessions are forked from, as the server holds it: started clean, asked which layers hold.

It gets an empty environment and nothing of the server's packages; where bubblewrap is asked for, bubblewrap starts it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_env.sandbox import bubblewrap, tree
from coding_env.sandbox.inside import frames, zygote
from coding_env.sandbox.layers import SandboxReport
from coding_env.sandbox.limits import Limits

logger = logging.getLogger(__name__)

VARIABLES = {
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each costs 64 MB of address space, which is limited
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # equal seeds give equal orders of sets
}
"""All that is in the environment of the process and of the code that is run."""
_PRELOADED = (
    "array, base64, bisect, calendar, collections.abc, contextlib, copy, csv, dataclasses, datetime, decimal, "
    "difflib, enum, fractions, functools, hashlib, heapq, io, itertools, json, math, operator, pickle, pprint, random, "
    "re, runpy, statistics, string, subprocess, tempfile, textwrap, threading, time, typing, uuid"
)
# Nothing is imported from the working directory, which Python otherwise puts first.
_PROGRAM = (
    f"import sys; sys.path.pop(0); import {_PRELOADED}; sys.path.insert(0, sys.argv.pop(1)); "
    "from inside.zygote import main; main()"
)
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Needs:
    """What the sessions of one sandbox have in common."""

    limits: Limits
    packages: tuple[str, ...] = ()
    """Folders of packages that code may import from."""
    disabled: tuple[str, ...] = ()
    """Layers that are left out."""
    uid_base: int = 0
    """The first of the users that sessions have where the server is root."""
    executor: str = "python"
    """What runs cells."""
    imports: tuple[str, ...] = ()
    """What smolagents lets them import, beside what it does by itself."""
    import_from: tuple[str, ...] = ()
    """Where smolagents is found."""


@dataclass
class FirstProcess:
    """It, running."""

    process: subprocess.Popen[bytes]
    way: socket.socket
    report: SandboxReport

    def stop(self) -> None:
        """End it; every session ends too, once the server's ends of them are closed."""
        self.way.close()
        try:
            self.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class NotStartedError(Exception):
    """The process did not come to be; the text says why."""


def start(
    needs: Needs,
    folder: str,
    *,
    under_bubblewrap: bool,
    groups: Sequence[int],
    group_folders: Sequence[str],
    no_groups: str,
) -> FirstProcess:
    """Start it and wait until it has found out which layers hold.

    Args:
        needs: What its sessions have in common.
        folder: A folder of the sandbox's own.
        under_bubblewrap: Whether bubblewrap starts it.
        groups: Descriptors by which a process joins a control group, for a trial.
        group_folders: What holds the sessions' groups; the process removes them at its end.
        no_groups: Why there are none.

    Raises:
        NotStartedError: It does not answer, or cannot be what it is to be.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    # Not isolated from its environment, which is made here: the seed of hashes comes by it.
    command = [tree.interpreter(), "-s", "-S", "-c", _PROGRAM, _HERE, str(theirs.fileno())]
    if under_bubblewrap:
        shown = [*tree.readable(), *needs.packages, *needs.import_from, _HERE]
        command = [*bubblewrap.prefix(shown, folder), *command]
    with theirs:
        try:
            process = subprocess.Popen(
                command,
                env=VARIABLES,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE if under_bubblewrap else None,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise NotStartedError(str(error)) from error
    ours.settimeout(_START_TIMEOUT_S)
    found = FirstProcess(process, ours, SandboxReport(layers=[], missing={}))
    try:
        socket.send_fds(ours, [frames.pack(_config(needs, folder, group_folders, no_groups))], list(groups))
        data = ours.recv(zygote.MAX_MESSAGE)
    except OSError as error:
        data = b""
        logger.debug("The sandbox's process did not answer: %s", error)
    answer: dict[str, Any] = frames.Unpacker(zygote.MAX_MESSAGE).feed(data)[0] if data else {}
    if not answer or "failed" in answer:
        found.stop()
        raise NotStartedError(str(answer.get("failed") or _last_words(process) or "see its error above"))
    if under_bubblewrap:
        answer["layers"].append("bubblewrap")
    found.report = SandboxReport.model_validate(answer)
    if process.stderr is not None:
        process.stderr.close()
    return found


def _config(needs: Needs, folder: str, group_folders: Sequence[str], no_groups: str) -> dict[str, Any]:
    return {
        "folder": folder,
        "root": os.path.join(folder, "root"),
        "readable": [*tree.readable(), *needs.packages],
        "hidden": tree.hidden(needs.packages),
        "landlock_readable": [*tree.landlock_readable(), *needs.packages],
        "packages": list(needs.packages),
        "off": list(needs.disabled),
        "uid_base": needs.uid_base,
        "limits": needs.limits.model_dump(),
        "shared_processes": _share_of_processes(),
        "variables": VARIABLES,
        "executor": needs.executor,
        "imports": list(needs.imports),
        "import_from": list(needs.import_from),
        "no_groups": no_groups,
        "groups": list(group_folders),
    }


def _last_words(process: subprocess.Popen[bytes]) -> str:
    if process.stderr is None:
        return ""
    with process.stderr:
        return process.stderr.read().decode(errors="replace").strip()[-500:]


def _share_of_processes() -> int | None:
    """How many processes and threads sessions may have together that share the server's user: three of four."""
    most = processes_allowed()
    return None if most is None else most * 3 // 4


def processes_allowed() -> int | None:
    """How many processes and threads the container may have; None where nothing says so."""
    for path in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"):
        with contextlib.suppress(OSError, ValueError):
            return int(Path(path).read_text())
    return None
