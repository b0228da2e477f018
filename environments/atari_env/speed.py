"""How many steps a second a server makes with whole screens on the native wire: ``python -m atari_env.speed``.

The server is a process of its own; its clients share one other. Sessions all step at once, without pause.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import anyio

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers import ProcessProvider


async def measure(url: str, sessions: int, steps: int, obs_type: str) -> tuple[float, float, float]:
    """Steps a second of all sessions together, and the median and 99th percentile of a step's milliseconds.

    Args:
        url: The server.
        sessions: How many play side by side.
        steps: Steps of each.
        obs_type: What they observe.
    """
    took: list[float] = []
    ends: list[float] = []
    ready, go = 0, anyio.Event()
    started = time.perf_counter()

    async def one(number: int) -> None:
        nonlocal ready
        async with GenericEnvClient(url, wire="native") as env:
            await env.reset(seed=number, obs_type=obs_type)
            ready += 1
            if ready == sessions:
                go.set()
            await go.wait()
            for step in range(steps):
                begun = time.perf_counter()
                result = await env.step({"action_id": 2 + step % 2})
                took.append(time.perf_counter() - begun)
                if result.done:
                    await env.reset(seed=number, obs_type=obs_type)
            ends.append(time.perf_counter())

    async with anyio.create_task_group() as group:
        for number in range(sessions):
            group.start_soon(one, number)
        await go.wait()
        started = time.perf_counter()
    took.sort()
    rate = sessions * steps / (max(ends) - started)
    return rate, 1e3 * took[len(took) // 2], 1e3 * took[int(0.99 * len(took))]


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--obs-type", default="rgb", help="what is observed (default: rgb)")
    parser.add_argument("--sessions", type=int, nargs="*", default=[1, 16, 64], help="sessions (default: 1 16 64)")
    parser.add_argument("--steps", type=int, default=2000, help="steps of all sessions together (default: 2000)")
    chosen = parser.parse_args()
    print("| sessions | steps a second | a step's median | 99th percentile |\n|---|---|---|---|")
    with ProcessProvider(str(Path(__file__).parent)) as provider:
        for sessions in chosen.sessions:
            steps = max(chosen.steps // sessions, 1)
            rate, median, late = anyio.run(measure, provider.replicas[0].base_url, sessions, steps, chosen.obs_type)
            print(f"| {sessions} | {rate:,.0f} | {median:.1f} ms | {late:.1f} ms |", flush=True)


if __name__ == "__main__":
    main()
