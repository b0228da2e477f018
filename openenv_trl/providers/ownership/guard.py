"""The owner's side of its reaper: it is started before anything else is, and told where there is something."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openenv_trl.errors import ProviderError
from openenv_trl.providers.owner import this_owner

_REAPER = Path(__file__).with_name("reaper.py")
_ROOT = Path(__file__).parents[3]
_START_S = 60.0


class Guard:
    """The reaper's watch over one place: whatever the owner leaves there when it dies is removed.

    Args:
        place: Where, as `openenv_trl.providers.ownership.sweep` reads it: ``{"type": "docker", "docker_host": None}``.

    Raises:
        ProviderError: The reaper could not be started.
    """

    def __init__(self, place: Mapping[str, Any]) -> None:
        self._reaper = _reaper()
        self._key = next(_keys)
        self._reaper.tell({"key": self._key, "place": dict(place)})

    def release(self) -> None:
        """Nothing of the owner's is left there. May be called again."""
        self._reaper.tell({"key": self._key})


class _Reaper:
    """This process's reaper."""

    def __init__(self) -> None:
        owner = this_owner()
        self.pid = owner.pid
        self._lock = threading.Lock()
        read_end, self.pipe = os.pipe()
        # As seen from elsewhere: the reaper's own folder may be another one than that of a relative path.
        paths = dict.fromkeys([str(_ROOT), *(os.path.abspath(path) for path in sys.path if path)])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-I", "-S", str(_REAPER), owner.id, str(owner.pid), owner.process]
        try:
            # It leaves a process of its own behind and ends: there is nobody to wait for later.
            subprocess.run(
                command,
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                timeout=_START_S,
                check=True,
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self.pipe)
            raise ProviderError(f"The process that cleans up after this one did not start: {error}") from error
        finally:
            os.close(read_end)

    def tell(self, said: Mapping[str, Any]) -> None:
        """Write one line, from the process that it watches; a forked copy has nothing to say."""
        if self.pid == os.getpid():
            with self._lock, contextlib.suppress(BrokenPipeError):  # killed: the servers' leases are left
                os.write(self.pipe, json.dumps(said).encode() + b"\n")


_keys = itertools.count()
_lock = threading.Lock()
_running: _Reaper | None = None


def _reaper() -> _Reaper:
    global _running
    with _lock:
        if _running is None or _running.pid != os.getpid():
            _running = _Reaper()
        return _running


def _forget() -> None:
    global _lock, _running
    _lock = threading.Lock()
    if _running is not None:
        with contextlib.suppress(OSError):
            os.close(_running.pipe)
    _running = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
