"""Follows a pod's log, line by line, also over a lost connection: from the time of the last line that came."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import anyio

from openenv_trl.errors import ProviderError
from openenv_trl.providers.kubernetes.api import ClusterApi
from openenv_trl.providers.kubernetes.faults import ApiFault
from openenv_trl.providers.kubernetes.manifests import CONTAINER

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0


class LogFollower:
    """Passes on what one pod's server writes, each line once.

    Args:
        api: The cluster.
        pod: The pod's name.
        on_line: Called with each line.
    """

    def __init__(self, api: ClusterApi, pod: str, on_line: Callable[[str], None]) -> None:
        self._api = api
        self._pod = pod
        self._on_line = on_line
        self._last: str = ""
        self._at_last = 0
        """Lines that came with the time of the last one."""

    async def run(self) -> None:
        """Follow until cancelled, or until the pod has gone."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async with aclosing(self._api.follow_log(self._pod, CONTAINER, self._since())) as lines:
                    again = self._at_last
                    async for line in lines:
                        time, _, text = line.partition(" ")
                        pause_s = _FIRST_PAUSE_S
                        # A log is read again from a whole second on: what came before is passed over.
                        if time < self._last:
                            continue
                        if time == self._last and again:
                            again -= 1
                            continue
                        self._at_last = self._at_last + 1 if time == self._last else 1
                        self._last = time
                        self._on_line(text)
            except ApiFault as fault:
                if fault.status == 404:
                    return
            except ProviderError:
                pass
            await anyio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def _since(self) -> str:
        """The whole second of the last line: the API knows no finer times."""
        return f"{self._last[:19]}Z" if self._last else ""
