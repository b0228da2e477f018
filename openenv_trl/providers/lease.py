"""The owner's side of leases: it renews each server's while it lives, so that a dead owner's servers end by themselves.

A server of this package ends when nobody has renewed its lease (`openenv_trl.wire.lease`). One that has no lease, as an
image of the public package, is found out by its answer and left alone from then on.
"""

from __future__ import annotations

import hmac
import importlib
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from openenv_trl.providers.base import Replica
from openenv_trl.wire.lease import (
    LEASE_HEADER,
    LEASE_PATH,
    LEASE_SECRET_HEADER,
    LEASE_START_VARIABLE,
    LEASE_TOKEN_VARIABLE,
    LEASE_VARIABLE,
)

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("openenv_trl.providers")

_AT_ONCE = 64
_LONGEST_REQUEST_S = 10.0
_SHORTEST_PAUSE_S = 0.2
_LONGEST_WAIT_S = 5.0


@dataclass
class _Renewal:
    """What is known of one replica's lease."""

    due_at: float
    running: bool = False


class RenewalPlan:
    """Which leases are due. It owns no clock: times are the caller's.

    A third of the lease lies between two renewals, and a twelfth between two tries of one that failed.

    Args:
        lease_s: The servers' lease.
    """

    def __init__(self, lease_s: float) -> None:
        self.pause_s = max(_SHORTEST_PAUSE_S, lease_s / 12)
        self._every_s = lease_s / 3
        self._renewals: dict[str, _Renewal] = {}
        self._without: set[str] = set()

    def due(self, names: Iterable[str], now: float) -> list[str]:
        """Return those to renew now, and take them as begun; what is not named any more is forgotten."""
        present = list(names)
        self._renewals = {name: self._renewals.get(name) or _Renewal(now) for name in present}
        self._without.intersection_update(present)
        due = [
            name
            for name, renewal in self._renewals.items()
            if name not in self._without and not renewal.running and renewal.due_at <= now
        ]
        for name in due:
            self._renewals[name].running = True
        return due

    def renewed(self, name: str, now: float) -> None:
        """A server has taken it."""
        self._next(name, now + self._every_s)

    def failed(self, name: str, now: float) -> None:
        """A server has not answered, or refused."""
        self._next(name, now + self.pause_s)

    def without(self, name: str) -> None:
        """A server has no lease."""
        self._without.add(name)

    def _next(self, name: str, at: float) -> None:
        if name in self._renewals:
            self._renewals[name] = _Renewal(at)


def _says_more_than_renewals(record: logging.LogRecord) -> bool:
    """A filter: httpx tells of each request at INFO, and renewals never end."""
    return LEASE_PATH not in record.getMessage()


class LeaseKeeper:
    """Renews the leases of one provider's servers.

    Args:
        replicas: The servers that there are now; those without an address are passed over.
    """

    def __init__(self, replicas: Callable[[], Iterable[Replica]]) -> None:
        self._replicas = replicas
        self._token = secrets.token_urlsafe(32)
        self._secret = secrets.token_bytes(32)
        self._refused: set[str] = set()

    def variables(self, lease_s: float, start_s: float) -> dict[str, str]:
        """Return the environment variables that give a server its lease.

        Args:
            lease_s: The lease.
            start_s: How long the server may take until it serves.
        """
        return {
            LEASE_VARIABLE: f"{lease_s:g}",
            LEASE_TOKEN_VARIABLE: self._token,
            LEASE_START_VARIABLE: f"{start_s + lease_s:g}",
        }

    async def run(self, lease_s: float) -> None:
        """Renew until cancelled.

        Args:
            lease_s: The servers' lease.
        """
        logging.getLogger("httpx").addFilter(_says_more_than_renewals)
        # The first servers start meanwhile, which the import would slow down; a lease runs only when they serve.
        await anyio.sleep(min(_LONGEST_WAIT_S, lease_s / 6))
        httpx = await anyio.to_thread.run_sync(importlib.import_module, "httpx")
        plan = RenewalPlan(lease_s)
        limits = httpx.Limits(max_connections=_AT_ONCE, max_keepalive_connections=0)
        timeout_s = min(_LONGEST_REQUEST_S, max(1.0, lease_s / 3))
        # No proxy of the environment: the servers are the owner's own.
        client = httpx.AsyncClient(limits=limits, timeout=timeout_s, trust_env=False)
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        async with client, anyio.create_task_group() as tasks:
            while True:
                replicas = {each.name: each for each in self._replicas() if each.base_url}
                for name in plan.due(replicas, anyio.current_time()):
                    tasks.start_soon(self._renew, client, limiter, plan, replicas[name])
                await anyio.sleep(plan.pause_s)

    async def _renew(
        self, client: httpx.AsyncClient, limiter: anyio.CapacityLimiter, plan: RenewalPlan, replica: Replica
    ) -> None:
        import httpx

        headers = {**replica.headers, LEASE_HEADER: self._token, LEASE_SECRET_HEADER: self._secret_of(replica)}
        try:
            async with limiter:
                response = await client.post(f"{replica.base_url.rstrip('/')}{LEASE_PATH}", headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            logger.debug("The lease of %s was not renewed: %s: %s", replica.name, type(error).__name__, error)
            plan.failed(replica.name, anyio.current_time())
            return
        if response.is_success:
            plan.renewed(replica.name, anyio.current_time())
        elif response.status_code in (404, 405, 501):
            logger.debug("%s has no lease", replica.name)
            plan.without(replica.name)
        else:
            self._tell_of_refusal(replica, response.status_code)
            plan.failed(replica.name, anyio.current_time())

    def _secret_of(self, replica: Replica) -> str:
        """What renews this server alone: no server is told what renews another."""
        return hmac.new(self._secret, replica.name.encode(), "sha256").hexdigest()

    def _tell_of_refusal(self, replica: Replica, status: int) -> None:
        level = logging.DEBUG if status >= 500 or replica.name in self._refused else logging.WARNING
        self._refused.add(replica.name)
        logger.log(
            level,
            "%s refuses to have its lease renewed (POST %s%s: %d) and will end by itself. Let requests to that path "
            "through, or serve the application with `python -m openenv_trl.server`.",
            replica.name,
            replica.base_url,
            LEASE_PATH,
            status,
        )
