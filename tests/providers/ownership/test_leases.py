"""An owner renews the leases of its servers in time, whatever its own threads do, and lets go of those without one."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.providers.base import Replica
from openenv_trl.providers.engine_provider import EngineProvider
from openenv_trl.providers.lease import RenewalPlan
from openenv_trl.providers.spec import ContainerSpec
from openenv_trl.wire.lease import LEASE_HEADER, LEASE_SECRET_HEADER, LEASE_TOKEN_VARIABLE, LEASE_VARIABLE

LEASE_S = 2.0


class Server(http.server.ThreadingHTTPServer):
    """A server that answers renewals with one status, and remembers them."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.renewals: list[tuple[float, dict[str, str]]] = []
        self.renewed = threading.Condition()

    def wait_for(self, count: int) -> None:
        with self.renewed:
            assert self.renewed.wait_for(lambda: len(self.renewals) >= count, 60)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        with self.server.renewed:
            self.server.renewals.append((time.monotonic(), {key.lower(): value for key, value in self.headers.items()}))
            self.server.renewed.notify_all()
        self.send_response(self.server.status if self.path == "/lease" else 500)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class FixedProvider(EngineProvider[ContainerSpec]):
    """Its replicas are servers that run already."""

    SPEC = ContainerSpec

    def __init__(self, *servers: Server) -> None:
        super().__init__(ContainerSpec(type="fixed", image="none", replicas=len(servers), lease_s=LEASE_S))
        self._servers = list(servers)
        self.variables: dict[str, str] = {}

    async def _connect(self) -> None:
        pass

    async def _disconnect(self) -> None:
        pass

    async def _launch(self, name: str) -> Replica:
        self.variables = self._lease_variables(name)
        port = self._servers.pop().server_address[1]
        return Replica(f"http://127.0.0.1:{port}", name, name, {"x-door": "open"})

    async def _remove(self, replica: Replica) -> None:
        pass

    async def _is_alive(self, replica: Replica) -> bool:
        return True

    async def _read_logs(self, replica: Replica, tail: int) -> str:
        return ""


@pytest.fixture
def servers() -> Iterator[dict[str, Server]]:
    made = {"leased": Server(204), "without": Server(404), "broken": Server(503)}
    for server in made.values():
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    for server in made.values():
        server.shutdown()
        server.server_close()


def test_leases_are_renewed_while_the_owners_main_thread_computes(servers):
    leased = servers["leased"]
    with FixedProvider(leased) as provider:
        ends = time.monotonic() + 120
        while len(leased.renewals) < 4 and time.monotonic() < ends:
            pass  # as a training step that never gives way
        with leased.renewed:
            at = [when for when, _ in leased.renewals]
            headers = leased.renewals[0][1]
    assert len(at) >= 4
    assert headers[LEASE_HEADER] == provider.variables[LEASE_TOKEN_VARIABLE]
    secrets = {headers[LEASE_SECRET_HEADER] for _, headers in leased.renewals}
    assert len(secrets) == 1
    assert not secrets & set(provider.variables.values())
    assert headers["x-door"] == "open"
    assert provider.variables[LEASE_VARIABLE] == "2"


def test_a_server_without_a_lease_is_asked_once_and_one_that_fails_again_and_again(servers):
    with FixedProvider(*servers.values()):
        servers["broken"].wait_for(6)
        servers["leased"].wait_for(3)
    assert len(servers["without"].renewals) == 1


def test_a_stopped_provider_renews_nothing_more(servers):
    with FixedProvider(servers["leased"]):
        servers["leased"].wait_for(1)
    leased = servers["leased"]

    def renewed_again() -> bool:
        with leased.renewed:
            renewals = len(leased.renewals)
            return leased.renewed.wait_for(lambda: len(leased.renewals) > renewals, LEASE_S)

    # The last one may have been on its way.
    assert not renewed_again() or not renewed_again()


@given(
    lease_s=st.floats(min_value=3.0, max_value=600.0),
    answers=st.lists(st.booleans(), min_size=1, max_size=30),
    delay=st.floats(min_value=0.0, max_value=1.0),
)
def test_a_lease_is_due_again_after_a_third_of_it_and_sooner_after_a_failure(lease_s, answers, delay):
    plan, now = RenewalPlan(lease_s), 0.0
    for succeeded in answers:
        assert plan.due(["one"], now) == ["one"]
        assert plan.due(["one"], now + lease_s) == []  # it is being renewed
        now += delay
        (plan.renewed if succeeded else plan.failed)("one", now)
        wait_s = lease_s / 3 if succeeded else lease_s / 12
        assert plan.due(["one"], now + wait_s * 0.99) == []
        now += wait_s * 1.01


def test_a_replica_that_was_removed_meanwhile_is_not_due_again():
    plan = RenewalPlan(60.0)
    assert plan.due(["one", "two"], 0.0) == ["one", "two"]
    plan.renewed("two", 0.0)
    plan.without("one")
    assert plan.due(["two"], 1.0) == []
    plan.renewed("one", 1.0)
    assert plan.due(["two"], 30.0) == ["two"]
    assert plan.due(["one"], 30.0) == ["one"]  # another one, with the name of the first
