"""The owner's side of its reaper: it is started before anything else is, and told where there is something."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openenv_trl.errors import ProviderError
from openenv_trl.providers.owner import this_owner

logger = logging.getLogger("openenv_trl.providers")

_REAPER = Path(__file__).with_name("reaper.py")
_ROOT = Path(__file__).parents[3]
_START_S = 60.0
_AGAIN_S = 1.0  # between two reapers, should something end each of them at once


class Guard:
    """The reaper's watch over one place: whatever the owner leaves there when it dies is removed.

    All guards of a process share one reaper. One that is killed is replaced at once.

    Args:
        place: Where, as `openenv_trl.providers.ownership.sweep` reads it: ``{"type": "docker", "docker_host": None}``.

    Raises:
        ProviderError: The reaper could not be started.
    """

    def __init__(self, place: Mapping[str, Any]) -> None:
        self._pid = os.getpid()
        self._key = next(_keys)
        try:
            _watched.tell(self._key, dict(place))
        except ProviderError:
            _watched.forget(self._key)
            raise

    def release(self) -> None:
        """Nothing of the owner's is left there. May be called again; a forked copy has nothing to say."""
        if self._pid == os.getpid():
            with contextlib.suppress(ProviderError):
                _watched.tell(self._key, None)


class _Reaper:
    """One reaper of this process."""

    def __init__(self) -> None:
        owner = this_owner()
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

    def tell(self, key: int, place: Mapping[str, Any] | None) -> bool:
        """Write one line; False where nobody reads it any more."""
        said = {"key": key} if place is None else {"key": key, "place": place}
        try:
            os.write(self.pipe, json.dumps(said).encode() + b"\n")
        except BrokenPipeError:
            return False
        return True

    def wait_for_its_end(self) -> None:
        """Block until it reads no more."""
        poll = select.poll()
        poll.register(self.pipe, 0)  # an error is told of always
        poll.poll()


class _Watched:
    """What the reaper is to know, and the reaper that knows it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[int, dict[str, Any]] = {}
        self._reaper: _Reaper | None = None

    def tell(self, key: int, place: dict[str, Any] | None) -> None:
        """Have the reaper know a place, or that nothing is left there.

        Raises:
            ProviderError: It could not be started.
        """
        with self._lock:
            if place is None:
                self._places.pop(key, None)
            else:
                self._places[key] = place
            if self._reaper is None or not self._reaper.tell(key, place):
                self._replace()

    def forget(self, key: int) -> None:
        """Take back a place that could not be told."""
        with self._lock:
            self._places.pop(key, None)

    def close_copy(self) -> None:
        """In a forked copy: let go of the reaper, which is the original's."""
        if self._reaper is not None:
            with contextlib.suppress(OSError):
                os.close(self._reaper.pipe)

    def _replace(self) -> None:
        """Start a reaper that knows all places, where there is one to know."""
        if self._reaper is not None:
            os.close(self._reaper.pipe)
            self._reaper = None
        if not self._places:
            return
        reaper = _Reaper()
        if not all(reaper.tell(key, place) for key, place in self._places.items()):
            os.close(reaper.pipe)
            raise ProviderError("The process that cleans up after this one has ended at once.")
        self._reaper = reaper
        threading.Thread(target=self._watch, args=(reaper,), name="reaper-watch", daemon=True).start()

    def _watch(self, reaper: _Reaper) -> None:
        """Replace it when it has been killed. Costs nothing meanwhile: the thread stands in the kernel."""
        reaper.wait_for_its_end()
        while True:
            with self._lock:
                if self._reaper is not reaper:
                    return
                try:
                    self._replace()
                    return
                except ProviderError as error:
                    logger.debug("%s", error)
                    if self._reaper is None:
                        return  # whoever guards a place next starts one
            time.sleep(_AGAIN_S)


_keys = itertools.count()
_watched = _Watched()


def _forget() -> None:
    global _watched
    _watched.close_copy()
    _watched = _Watched()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
