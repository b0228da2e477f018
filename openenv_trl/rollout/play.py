"""Play tasks over environment servers in one call, with a pool of sessions for just that long."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio.from_thread

from openenv_trl.client import GenericEnvClient, fetch_promises, fetch_schema
from openenv_trl.providers import Replica, SessionPool
from openenv_trl.providers.replica_pool import PoolMember, PoolSettings, ReplicaPool, StartLimit
from openenv_trl.rollout.engine import RolloutEngine
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.observer import RolloutObserver
from openenv_trl.rollout.policy import MessagePolicy, Policy, SamplingParameters
from openenv_trl.rollout.servers import ProvidedServers, Servers, server_count
from openenv_trl.rollout.session import SessionSource
from openenv_trl.rollout.strategies import RolloutStrategies
from openenv_trl.rollout.task import Task
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.rollout.trajectory import Trajectory

T = TypeVar("T")

AnyPool = SessionPool[GenericEnvClient] | ReplicaPool[GenericEnvClient]


def run_blocking(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Run an async function to its end, on an event loop of its own in another thread.

    Unlike ``anyio.run`` it works where a loop is running already, as in a notebook.

    Args:
        function: What to run.
        *arguments: Its arguments.
    """
    with anyio.from_thread.start_blocking_portal("asyncio") as portal:
        return portal.call(function, *arguments)


@asynccontextmanager
async def open_pool(
    servers: Servers, *, sessions_per_server: int, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[AnyPool, None]:
    """A pool of generic sessions on the servers, closed with the block, and with it what it started.

    Args:
        servers: Addresses of environment servers, or what starts them.
        sessions_per_server: Sessions to hold open on each address at most; what starts servers has a number of its own.
        headers: HTTP headers of every connection.

    Raises:
        ConfigurationError: What starts the servers cannot be used here, as when its package is not installed.
    """
    if isinstance(servers, ProvidedServers):
        async with replica_pool(servers.spec, servers.pool, headers=headers) as replicas:
            yield replicas
        return

    async def connect(base_url: str) -> GenericEnvClient:
        client = GenericEnvClient(base_url, headers=dict(headers) if headers else None)
        await client.connect()
        return client

    pool = SessionPool(servers, connect, sessions_per_server=sessions_per_server)
    try:
        yield pool
    finally:
        await pool.aclose()


def replica_pool(
    members: PoolMember | Sequence[PoolMember],
    settings: PoolSettings | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    shared: StartLimit | None = None,
) -> ReplicaPool[GenericEnvClient]:
    """A pool of generic sessions on servers that it starts and stops; it is opened by ``async with``.

    Args:
        members: A provider, its spec (also as a settings file has it), the address of a server, or a list of such.
        settings: How many servers, when, and how they are watched.
        headers: HTTP headers of every connection, beside those that a server itself needs.
        shared: Limits that the pool keeps together with others.

    Raises:
        ConfigurationError: There is no member, or one cannot be used.

    Example:
        >>> async with replica_pool({"type": "docker", "image": "echo-env:latest"}) as pool:
        ...     engine = RolloutEngine(pool, tokenizer, fetch_schema=fetch_schema)
    """

    async def connect(replica: Replica) -> GenericEnvClient:
        every = {**(headers or {}), **replica.headers}
        client = GenericEnvClient(replica.base_url, headers=every or None)
        await client.connect()
        return client

    return ReplicaPool(members, connect, settings, shared=shared)


def asking(
    fetch: Callable[..., Awaitable[dict[str, Any]]], pool: SessionSource, headers: Mapping[str, str] | None
) -> Callable[[str], Awaitable[dict[str, Any]]]:
    """A question to a server by its address, asked with the headers that its sessions are opened with.

    Args:
        fetch: Such as ``openenv_trl.client.fetch_schema``.
        pool: Knows a replica's own headers.
        headers: Of every connection.
    """

    async def ask(base_url: str) -> dict[str, Any]:
        headers_of = getattr(pool, "headers_of", None)
        own: Mapping[str, str] = {} if headers_of is None else headers_of(base_url)
        return await fetch(base_url, headers={**(headers or {}), **own} or None)

    return ask


async def play_tasks(
    tasks: Sequence[Task],
    servers: Servers,
    tokenizer: ChatTokenizer | None,
    make_policy: Callable[[RolloutEngine], Policy | MessagePolicy],
    *,
    sampling: SamplingParameters | None = None,
    limits: RolloutLimits | None = None,
    strategies: RolloutStrategies | None = None,
    concurrency: int = 256,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    on_trajectory: Callable[[Trajectory], None] | None = None,
    observer: RolloutObserver | None = None,
) -> list[Trajectory]:
    """Play one episode for each task.

    Args:
        tasks: What to play.
        servers: Addresses of the environment's servers, or what starts them.
        tokenizer: With a chat template; None where the policy takes and gives messages.
        make_policy: Given the engine, which then knows the actions and the chat template's pieces, who plays.
        sampling: How the policy samples.
        limits: Of each episode.
        strategies: What is done when an episode fails or is slow.
        concurrency: Episodes open at once, over all servers.
        chat_template_kwargs: More arguments for the chat template.
        on_trajectory: Called with each trajectory as it is finished.
        observer: Hears what each episode does meanwhile, such as a `RolloutWatch`.

    Returns:
        One trajectory for each task, in the tasks' order.

    Raises:
        OpenEnvError: As `RolloutEngine.run`.
    """
    per_server = -(-concurrency // server_count(servers))
    async with open_pool(servers, sessions_per_server=per_server) as pool:
        engine = RolloutEngine(
            pool,
            tokenizer,
            limits=limits or RolloutLimits(),
            strategies=strategies,
            max_concurrent_episodes=concurrency,
            fetch_schema=asking(fetch_schema, pool, None),
            fetch_promises=asking(fetch_promises, pool, None),
            chat_template_kwargs=chat_template_kwargs,
        )
        await engine.prepare()
        return await engine.run(tasks, make_policy(engine), sampling, on_trajectory=on_trajectory, observer=observer)
