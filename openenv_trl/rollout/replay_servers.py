"""Replays over environment servers in one call, with pools of sessions for just that long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from openenv_trl.rollout.play import open_pool, run_blocking
from openenv_trl.rollout.replay import Replay, replay_all
from openenv_trl.rollout.session import SessionSource
from openenv_trl.rollout.trajectory import Trajectory


def replay_over_servers(
    trajectories: Sequence[Trajectory],
    base_urls: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    concurrency: int = 64,
    connect_timeout_s: float = 60.0,
    call_timeout_s: float = 60.0,
    headers: Mapping[str, str] | None = None,
    on_replay: Callable[[Replay], None] | None = None,
) -> list[Replay]:
    """Play trajectories again, and wait until all are done. Works where an event loop runs already, as in a notebook.

    Args:
        trajectories: What to play.
        base_urls: Environment servers; of several environments, by the names of ``Trajectory.environment``.
        concurrency: Sessions at once, over all servers.
        connect_timeout_s: Seconds that each may wait for a session.
        call_timeout_s: Seconds that a reset and each step may take.
        headers: HTTP headers of every connection.
        on_replay: Called with each as it is done, in another thread.

    Returns:
        One for each trajectory, in their order.

    Raises:
        ConfigurationError: There are no servers, or none for an environment.

    Example:
        >>> replays = replay_over_servers(read_parquet("outputs/trajectories"), ["http://localhost:8000"])
        >>> [replay.difference for replay in replays if not replay.is_equal]
    """

    async def run() -> list[Replay]:
        async with AsyncExitStack() as stack:

            async def pool(urls: Sequence[str]) -> SessionSource:
                per_server = -(-concurrency // max(len(urls), 1))
                opened = open_pool(urls, sessions_per_server=max(per_server, 1), headers=headers)
                return await stack.enter_async_context(opened)

            if isinstance(base_urls, Mapping):
                pools: SessionSource | dict[str, SessionSource] = {k: await pool(v) for k, v in base_urls.items()}
            else:
                pools = await pool(base_urls)
            return await replay_all(
                trajectories,
                pools,
                concurrency=concurrency,
                connect_timeout_s=connect_timeout_s,
                call_timeout_s=call_timeout_s,
                on_replay=on_replay,
            )

    return run_blocking(run)
