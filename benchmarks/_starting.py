"""Starts containers with one package's provider and client, and times it: a process of its own for each package.

Usage: ``python _starting.py PACKAGE IMAGE``, with "ours" or "public". For each line of input, a number of replicas, one
line of output: JSON with the seconds until each had answered its first reset, and of ours where the time went.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

_READY_S = 240.0
Figures = dict[str, float]


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def start_ours(image: str) -> Callable[[int], Figures]:
    import anyio

    from openenv_trl.client import GenericEnvClient
    from openenv_trl.providers.docker import LocalDockerProvider

    async def first_reset(base_url: str) -> None:
        async with GenericEnvClient(base_url) as env:
            await env.reset()

    async def start(replicas: int) -> Figures:
        begin, begin_clock = time.perf_counter(), time.time()
        async with LocalDockerProvider(image=image, replicas=replicas, ready_timeout_s=_READY_S) as servers:
            ready = time.perf_counter()
            async with anyio.create_task_group() as group:
                for base_url in servers.base_urls:
                    group.start_soon(first_reset, base_url)
            end = time.perf_counter()
            steps = await anyio.to_thread.run_sync(phases, servers.replicas[0].id, begin_clock, ready - begin)
            idle = await anyio.to_thread.run_sync(idle_megabytes, servers.replicas[0].id)
            stopping = time.perf_counter()
        stopped = time.perf_counter()
        return {
            "seconds": end - begin,
            **steps,
            "first_reset_s": end - ready,
            "stop_s": stopped - stopping,
            "idle_mb": idle,
        }

    return lambda replicas: anyio.run(start, replicas)


def start_public(image: str) -> Callable[[int], Figures]:
    from openenv.core.containers.runtime.providers import LocalDockerProvider
    from openenv.core.generic_client import GenericEnvClient

    def start(replicas: int) -> Figures:
        begin = time.perf_counter()
        providers: list[Any] = []
        try:
            for _ in range(replicas):  # it has no call for several
                provider = LocalDockerProvider()
                providers.append(provider)
                base_url = provider.start_container(image)
                provider.wait_for_ready(base_url, timeout_s=_READY_S)
                with GenericEnvClient(base_url=base_url).sync() as env:
                    env.reset()
            seconds = time.perf_counter() - begin
            return {"seconds": seconds, "idle_mb": idle_megabytes(providers[0]._container_id)}
        finally:
            # Not by its own stop, which takes ten seconds for each: its server is not process 1.
            docker("rm", "--force", *(each._container_id for each in providers if each._container_id))

    return start


def phases(container: str, begin: float, ready_s: float) -> Figures:
    """Where the seconds until readiness went, by the engine's own times."""
    created, started = docker("inspect", "--format", "{{.Created}} {{.State.StartedAt}}", container).split()
    # The server's lines are on its standard error.
    lines = subprocess.run(["docker", "logs", "--timestamps", container], capture_output=True, text=True, check=True)
    serving = next(line for line in lines.stderr.splitlines() if "Serving on" in line).split()[0]
    marks = [begin, *map(seconds_of, (created, started, serving)), begin + ready_s]
    names = ("until_created_s", "until_started_s", "until_serving_s", "until_noticed_s")
    return {name: after - before for name, before, after in zip(names, marks, marks[1:], strict=False)}


def seconds_of(stamp: str) -> float:
    """The engine's time, which has nanoseconds, in seconds since 1970."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def idle_megabytes(container: str) -> float:
    """What a container holds of memory, its file cache not counted."""
    text = docker("stats", "--no-stream", "--format", "{{.MemUsage}}", container).split("/")[0].strip()
    units = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
    return float(text[:-3]) * units[text[-3:]]


def main() -> None:
    package, image = sys.argv[1:]
    start = start_ours(image) if package == "ours" else start_public(image)
    print("{}", flush=True)  # imported, and ready to be timed
    for line in sys.stdin:
        print(json.dumps(start(int(line))), flush=True)


if __name__ == "__main__":
    main()
