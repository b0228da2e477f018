"""Measures what a run and a session cost on this machine, in process: ``python measure_latency.py`` prints JSON.

Its arguments are settings of the sandbox as a server has them: ``CODING_EXECUTOR=smolagents CODING_BUBBLEWRAP=always``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable

from coding_env.models import CodeAction
from coding_env.server.coding_environment import CodingEnvironment
from coding_env.server.settings import settings_from_variables

ONE = CodeAction(code="print(1)")


async def timed(count: int, call: Callable[[int], Awaitable[object]], pause_s: float = 0.0) -> dict[str, float]:
    """Milliseconds of one call after another: the median, and what 95 of 100 stay below."""
    took: list[float] = []
    for number in range(count):
        await asyncio.sleep(pause_s)
        started = time.perf_counter()
        await call(number)
        took.append(1000 * (time.perf_counter() - started))
    took.sort()
    return {"p50_ms": round(took[count // 2], 2), "p95_ms": round(took[int(count * 0.95)], 2)}


async def main() -> None:
    settings = settings_from_variables(dict(setting.split("=", 1) for setting in sys.argv[1:]))
    environment = CodingEnvironment(*settings)
    many = [CodingEnvironment(*settings) for _ in range(100)]

    async def session(number: int) -> None:
        await environment.reset_async(seed=number)
        await environment.step_async(ONE)

    async def judged(number: int) -> None:
        await environment.reset_async(prompt="", tests=[f"assert f({each}) == {each}" for each in range(5)])
        await environment.run_tests("def f(x): return x")

    await session(0)
    results: dict[str, object] = {
        "settings": sys.argv[1:],
        "sandbox": environment.state.sandbox,
        "cpus": os.cpu_count(),
    }
    results["run print(1) in a warm session"] = await timed(1000, lambda _: environment.step_async(ONE))
    results["run print(1) after a rest"] = await timed(50, lambda _: environment.step_async(ONE), 0.3)
    results["new session and print(1)"] = await timed(100, session, 0.1)
    results["new session and five hidden tests"] = await timed(50, judged, 0.1)
    started = time.perf_counter()
    await asyncio.gather(*[each.reset_async() for each in many])
    results["100 sessions at once_s"] = round(time.perf_counter() - started, 2)
    started = time.perf_counter()
    await asyncio.gather(*[each.step_async(ONE) for each in many])
    results["100 runs at once_s"] = round(time.perf_counter() - started, 3)
    results["load_average"] = [round(load, 1) for load in os.getloadavg()]
    for each in (environment, *many):
        each.close()
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
