"""A project that was fetched by git, in a folder of its own that goes with its provider.

The folder is locked while its provider lives. What a killed one left is found without a lock, and removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

from openenv_trl.errors import ServerStartError
from openenv_trl.providers.uv.commands import find_git, run_to_end
from openenv_trl.providers.uv.git_address import TRANSPORTS, GitAddress, without_secrets

_PREFIX = "openenv-trl-project-"
_LOCK = "owner.lock"
# A folder younger than this may be one that its maker has not locked yet.
_YOUNG_S = 60.0
# No question can be answered here, such as for a password: the fetch has to fail then.
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
    "GIT_ALLOW_PROTOCOL": ":".join(TRANSPORTS),
}


class Checkout:
    """A folder for one fetched project. It is there as soon as the object exists, and gone after `remove`."""

    def __init__(self) -> None:
        remove_abandoned()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock: IO[bytes] = (self._folder / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._top = self._folder / "project"
        self._top.mkdir()

    async def fetch(self, address: GitAddress, timeout_s: float) -> Path:
        """Fetch the project's files, without their history, and return its folder.

        Raises:
            ConfigurationError: git is not installed.
            ServerStartError: It could not be fetched; the error has git's last lines.
        """
        git = find_git()
        fetch = ["fetch", "--quiet", "--depth", "1", "--", address.url, address.revision or "HEAD"]
        until = time.monotonic() + timeout_s
        for step in (["init", "--quiet"], fetch, ["checkout", "--quiet", "--detach", "FETCH_HEAD"]):
            left_s = max(0.1, until - time.monotonic())
            code, said = await run_to_end(
                [git, *step], cwd=self._top, env=_ENVIRONMENT, timeout_s=left_s, on_line=lambda _line: None
            )
            if code != 0:
                why = f"not fetched within {timeout_s:g} s. Raise prepare_timeout_s" if code is None else "not fetched"
                raise ServerStartError(
                    f"The project {address} was {why}. Check its address, its revision, and your access. git said:",
                    log_tail=without_secrets(said),
                )
        folder = (self._top / address.subdirectory).resolve()
        if not folder.is_relative_to(self._top.resolve()):
            raise ServerStartError(f"subdirectory '{address.subdirectory}' of {address} leads out of the repository.")
        return folder

    def remove(self) -> None:
        """Remove it. May be called again."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


def remove_abandoned() -> None:
    """Remove the folders of providers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, locked by its provider, or gone meanwhile
            status = folder.lstat()
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _YOUNG_S:
                continue
            with (folder / _LOCK).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
