"""bubblewrap, where the system lets that program make namespaces and not this one.

It starts the process that sessions are forked from, and not each session, which would have to start a Python each time.
Where what it starts may keep its rights inside, every session then makes namespaces of its own, as without bubblewrap.
Where not (it is a set-user-id program, or a profile takes the rights away), all sessions share one file tree without
the server's files, one list of processes and one network without an interface, and the other layers keep them apart.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence

from coding_env.sandbox.inside import confine

_SHARED = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")


def program() -> str | None:
    """Path of bubblewrap; None where it is not installed."""
    return shutil.which("bwrap")


def prefix(readable: Sequence[str], writable: str) -> list[str]:
    """The beginning of a command that is run under bubblewrap.

    Args:
        readable: Files and folders that are there, read-only, under their own names.
        writable: A folder that is there and may be changed.
    """
    path = program() or "bwrap"
    command = [path, *_SHARED, "--new-session", "--proc", "/proc", "--tmpfs", "/tmp"]
    # Not its own /dev: for that it makes a second namespace of users, by the call that may be refused.
    for name in confine.DEVICES:
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    if not _is_set_user_id(path):
        command += ["--unshare-user", "--cap-add", "ALL"] if os.geteuid() else ["--cap-add", "ALL"]
    for each in readable:
        if os.path.islink(each):
            command += ["--symlink", os.readlink(each), each]
        elif os.path.exists(each):
            command += ["--ro-bind", each, each]
    return [*command, "--bind", writable, writable, "--chdir", "/", "--"]


def _is_set_user_id(path: str) -> bool:
    """Whether it has rights by its owner: then it gives none of them on."""
    try:
        return bool(os.stat(path).st_mode & stat.S_ISUID) and os.geteuid() != 0
    except OSError:
        return False
