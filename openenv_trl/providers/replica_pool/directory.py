"""Which server is where, who runs it, and why those that died did."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from openenv_trl.providers.base import Replica
from openenv_trl.providers.logs import logger
from openenv_trl.providers.replica_pool.vigil import Vigil

_EXPLANATIONS = 256
# A session's end can be noticed before its server's: its engine has to tell, and its last lines have to be read.
_EXPLAIN_S = 5.0


@dataclass(frozen=True)
class Known:
    """One server of a pool."""

    replica: Replica
    vigil: Vigil | None
    """Whose provider runs it; None for a server that was given by its address."""


class Directory:
    """The servers of a pool by number and by address, and the deaths of the last ones that died."""

    def __init__(self) -> None:
        self._by_number: dict[int, Known] = {}
        self._by_address: dict[str, Known] = {}
        self._deaths: OrderedDict[str, str] = OrderedDict()
        self._death = anyio.Event()

    def add(self, number: int, known: Known) -> None:
        """There is one more server; what died at its address before is another one."""
        self._by_number[number] = self._by_address[known.replica.base_url] = known
        self._deaths.pop(known.replica.base_url, None)

    def forget(self, number: int) -> None:
        """A server is gone."""
        known = self._by_number.pop(number)
        if self._by_address.get(known.replica.base_url) is known:
            del self._by_address[known.replica.base_url]

    def by_number(self, number: int) -> Known:
        """The server of a member of the pool."""
        return self._by_number[number]

    def at(self, base_url: str) -> Known | None:
        """The server at an address; None where there is none any more."""
        return self._by_address.get(base_url)

    def note_death(self, base_url: str, why: str) -> None:
        """The server at an address is dead."""
        logger.warning("%s", why)
        self._deaths[base_url] = why
        if len(self._deaths) > _EXPLANATIONS:
            self._deaths.popitem(last=False)
        death, self._death = self._death, anyio.Event()
        death.set()

    async def death_of(self, base_url: str) -> None:
        """Waits until the death of the server at an address is noted."""
        while base_url not in self._deaths:
            await self._death.wait()

    async def explain(self, base_url: str, ask: Callable[[Known], Awaitable[str]]) -> str:
        """Why the server at an address died, where it did; waits a moment for the news where it does not answer.

        Args:
            base_url: The address.
            ask: Asks a server for its health; gives "" for a healthy answer.
        """
        known = self.at(base_url)
        if base_url not in self._deaths and known is not None:
            with anyio.move_on_after(_EXPLAIN_S):
                if not await ask(known):
                    return ""
                await self.death_of(base_url)
        return self._deaths.get(base_url, "")
