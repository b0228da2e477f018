"""Commands that prepare a project, run to their end: under a supervisor, so that they end with this process."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.replica_process import ReplicaProcess

# Another environment's marks would make uv, or the project's Python, look there.
_NOT_PASSED_ON = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
LEAVE_OUT = ("env", *(word for name in _NOT_PASSED_ON for word in ("-u", name)))
"""The beginning of a command that shall not see which environment this process runs in."""


def find_uv() -> str:
    """Return the path of uv: beside this Python, or where the shell finds it.

    Raises:
        ConfigurationError: It is not installed.
    """
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
    if found is None:
        raise ConfigurationError("uv is not installed, so its provider cannot be used: pip install uv")
    return found


def find_git() -> str:
    """Return the path of git.

    Raises:
        ConfigurationError: It is not installed.
    """
    found = shutil.which("git")
    if found is None:
        raise ConfigurationError(
            "git is not installed, so a git address cannot be fetched: install it, or name a folder"
        )
    return found


async def run_to_end(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    on_line: Callable[[str], None],
) -> tuple[int | None, str]:
    """Run a command, and return its exit code and its last lines; None for the code where the time was up.

    Cancelled or late, it is ended with all that it started.

    Args:
        command: The words.
        cwd: The folder to run it in.
        env: Environment variables over those of this process.
        timeout_s: Seconds at most.
        on_line: Called with each line that it writes, from another thread.
    """
    process = ReplicaProcess(
        [*LEAVE_OUT, *command],
        env={**os.environ, **this_owner().variables(), **env},
        cwd=str(cwd),
        passed_fds=[],
        grace_s=2.0,
        on_line=on_line,
        on_exit=lambda _process, _code: None,
    )
    code: int | None = None
    try:
        with anyio.move_on_after(timeout_s):
            # Shielded: whoever stops to wait must not cancel what the process's thread will set.
            code = await asyncio.shield(asyncio.wrap_future(process.exited))
    finally:
        if code is None:
            process.ask_to_stop()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(process.wait_stopped)
    return code, process.log_tail()
