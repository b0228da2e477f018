"""Which of several servers gets the next request: the least busy of those that answer. No clock, no socket."""

from __future__ import annotations


class ServerChoice:
    """Requests under way at each server, and which servers are in trouble.

    Invariant: what is chosen has the fewest requests under way among the servers that are not in trouble; equals take
    turns. Where all are in trouble, the one whose trouble is oldest is tried.

    Args:
        count: Servers.
        avoided_s: Seconds for which a server is avoided after a failure, while there are others.
    """

    def __init__(self, count: int, *, avoided_s: float = 5.0) -> None:
        self._under_way = [0] * count
        self._avoided_until = [float("-inf")] * count
        self._avoided_s = avoided_s
        self._turn = 0

    def choose(self, now: float) -> int:
        """The server for a request that begins now; it counts as under way until `ended`."""
        count = len(self._under_way)
        well = [server for server in range(count) if self._avoided_until[server] <= now]
        if well:
            chosen = min(well, key=lambda server: (self._under_way[server], (server - self._turn) % count))
        else:
            chosen = min(range(count), key=lambda server: (self._avoided_until[server], self._under_way[server]))
        self._turn = (chosen + 1) % count
        self._under_way[chosen] += 1
        return chosen

    def ended(self, server: int, now: float, *, trouble: bool) -> None:
        """A request of this server has ended; with ``trouble``, because the server failed."""
        self._under_way[server] -= 1
        self._avoided_until[server] = now + self._avoided_s if trouble else float("-inf")

    def any_well(self, now: float) -> bool:
        """Whether there is a server that is not known to be in trouble."""
        return any(until <= now for until in self._avoided_until)
