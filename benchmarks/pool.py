"""A pool of replicas beside what it adds to: callers over warm replicas, a burst on an empty pool, and its own cost.

- ``warm``: 256 callers, each of whom takes a session, resets it, and gives it back, again and again, over 4 replicas of
  blackjack that run: with a session for each caller, and with one for every four. How long they waited for a session,
  beside a `SessionPool` over the same servers. With a session for each, that is a turn of the event loop.
- ``burst``: 256 callers at once on a pool that runs nothing and may run 4 replicas: seconds until the first and the
  last has a session, beside the seconds that the provider alone takes for the same 4 replicas.
- ``cost``: microseconds of an acquire and release of a session that is open, beside a `SessionPool` on the same server.

    python benchmarks/pool.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from pathlib import Path
from typing import Any

import anyio
from _record import Target, record, spread

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers import ProcessProvider, SessionPool
from openenv_trl.providers.replica_pool import PoolSettings, ReplicaPool
from openenv_trl.providers.replica_pool.metrics import Reservoir
from openenv_trl.rollout.play import replica_pool

PACKAGES = ["openenv-trl", "anyio", "uvicorn", "websockets"]
ENVIRONMENT = Path(__file__).parent.parent / "environments" / "blackjack_env"
CALLERS = 256
REPLICAS = 4
RESETS = 20
CALLS = 4_000


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    each = [anyio.run(one_round) for _ in range(rounds)]
    results: dict[str, Any] = {"rounds": rounds, "callers": CALLERS, "replicas": REPLICAS}
    for part in each[0]:
        results[part] = {name: spread([round_[part][name] for round_ in each]) for name in each[0][part]}
    cost, burst, warm = results["cost"], results["burst"], results["warm_a_session_each"]
    targets = [
        Target("an acquire and release, as a multiple of SessionPool's", cost["ratio"]["median"], "<= 1.5"),
        Target("the last session of a burst, over the provider's start", burst["last_ratio"]["median"], "<= 1.3"),
        Target(
            "p95 of a wait with a session for each, as a multiple of SessionPool's",
            warm["p95_ratio"]["median"],
            "<= 1.3",
        ),
    ]
    record("pool", results, targets, PACKAGES)


async def connect(base_url: str) -> GenericEnvClient:
    """Opens a session."""
    client = GenericEnvClient(base_url)
    await client.connect()
    return client


async def one_round() -> dict[str, dict[str, float]]:
    """All parts once."""
    return {
        "warm_a_session_each": await warm(CALLERS // REPLICAS),
        "warm_one_for_four": await warm(CALLERS // REPLICAS // 4),
        "burst": await burst(),
        "cost": await cost(),
    }


async def warm(sessions_per_replica: int) -> dict[str, float]:
    """How long callers wait while all servers run, in a pool of sessions and in one of replicas."""
    settings = PoolSettings(min_replicas=0, sessions_per_replica=sessions_per_replica)
    ours, theirs = Reservoir(1_000_000), Reservoir(1_000_000)
    rates: list[float] = []
    async with ProcessProvider(ENVIRONMENT, replicas=REPLICAS, ready_timeout_s=300) as servers:

        async def of_sessions() -> None:
            async with SessionPool(servers.base_urls, connect, sessions_per_server=sessions_per_replica) as pool:
                await _play(pool, sessions_per_replica * REPLICAS, theirs)

        async def of_replicas() -> None:
            async with replica_pool(servers.base_urls, settings) as pool:
                rates.append(await _play(pool, sessions_per_replica * REPLICAS, ours))

        for part in (of_sessions, of_replicas, of_replicas, of_sessions):  # a busy machine slows both
            await part()
    p50, p95, longest = ours.percentiles([0.5, 0.95, 1])
    return {
        "acquire_ms_p50": p50 * 1e3,
        "acquire_ms_p95": p95 * 1e3,
        "acquire_ms_max": longest * 1e3,
        "session_pool_acquire_ms_p95": theirs.percentiles([0.95])[0] * 1e3,
        "p95_ratio": p95 / theirs.percentiles([0.95])[0],
        "resets_per_s": statistics.median(rates),
    }


async def _play(pool: SessionPool[Any], sessions: int, waits: Reservoir) -> float:
    leases = [await pool.acquire(600) for _ in range(sessions)]  # opens every session
    for lease in leases:
        await pool.release(lease)

    async def call(number: int) -> None:
        for _ in range(RESETS):
            began = time.perf_counter()
            async with pool.session(600) as session:
                waits.add(time.perf_counter() - began)
                await session.reset(seed=number)

    began = time.perf_counter()
    async with anyio.create_task_group() as callers:
        for number in range(CALLERS):
            callers.start_soon(call, number)
    return RESETS * CALLERS / (time.perf_counter() - began)


async def burst() -> dict[str, float]:
    """How long callers wait while nothing runs."""
    alone: list[float] = []
    provider = ProcessProvider(ENVIRONMENT, ready_timeout_s=300)

    async def add() -> None:
        await provider.add_replica()
        alone.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with anyio.create_task_group() as starts:
        for _ in range(REPLICAS):
            starts.start_soon(add)
    await provider.stop()

    settings = PoolSettings(min_replicas=0, max_replicas=REPLICAS, sessions_per_replica=CALLERS // REPLICAS)
    served: list[float] = []
    async with replica_pool(ProcessProvider(ENVIRONMENT, ready_timeout_s=300), settings) as pool:
        began = time.perf_counter()

        async def call() -> None:
            await pool.acquire(600)
            served.append(time.perf_counter() - began)

        async with anyio.create_task_group() as callers:
            for _ in range(CALLERS):
                callers.start_soon(call)
    return {
        "provider_first_s": min(alone),
        "provider_last_s": max(alone),
        "first_session_s": min(served),
        "last_session_s": max(served),
        "first_ratio": min(served) / min(alone),
        "last_ratio": max(served) / max(alone),
    }


async def cost() -> dict[str, float]:
    """What a lease costs, without a call."""
    async with ProcessProvider(ENVIRONMENT, ready_timeout_s=300) as servers:
        plain = SessionPool(servers.base_urls, connect, sessions_per_server=1)
        settings = PoolSettings(min_replicas=0, max_replicas=1, sessions_per_replica=1)
        async with plain, replica_pool(servers.base_urls, settings) as pool:
            ours, theirs = [], []
            for _ in range(5):  # in turns, so that a busy machine slows both
                theirs.append(await _microseconds(plain))
                ours.append(await _microseconds(pool))
    return {
        "session_pool_us": statistics.median(theirs),
        "replica_pool_us": statistics.median(ours),
        "ratio": statistics.median(ours) / statistics.median(theirs),
    }


async def _microseconds(pool: SessionPool[Any] | ReplicaPool[Any]) -> float:
    await pool.release(await pool.acquire(60))
    gc.collect()
    began = time.process_time()
    for _ in range(CALLS):
        await pool.release(await pool.acquire(60), healthy=True)
    return (time.process_time() - began) / CALLS * 1e6


if __name__ == "__main__":
    main()
