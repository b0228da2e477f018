"""What calls, resets and sessions cost, as JSON: ``python -m calendar_env.measure``.

The scripted solver plays each family and level in process, so that the calls are those that tasks need. Times are of
the processor and not of the clock: what else the machine does is not in them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from calendar_env.server.calendar_environment import CalendarEnvironment
from calendar_env.tasks import FAMILIES, LEVELS, generate
from calendar_env.tasks.solvers import solve
from calendar_env.tasks.solvers.desk import Refused


class TimedTools:
    """The tools of an environment, each call timed.

    Args:
        environment: The environment, within an episode.
        seconds: Where the times go.
    """

    def __init__(self, environment: CalendarEnvironment, seconds: list[float]) -> None:
        self._environment = environment
        self._seconds = seconds

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """What the tool answers."""
        began = time.thread_time()
        observation = self._environment.call_tool(tool, dict(arguments))
        self._seconds.append(time.thread_time() - began)
        if not observation.success:
            error = observation.resource["error"]
            raise Refused(error["code"], error["message"])
        return observation.resource


def measure(seeds: int, families: Sequence[str] = FAMILIES) -> dict[str, Any]:
    """Play families on every level.

    Args:
        seeds: Tasks of each family and level.
        families: The families.
    """
    calls: list[float] = []
    first_resets: list[float] = []
    resets: list[float] = []
    finishes: list[float] = []
    steps: list[int] = []
    environment = CalendarEnvironment()
    for family in families:
        for level in LEVELS:
            for seed in range(seeds):
                chosen: dict[str, Any] = {"task": family, "level": level, "task_seed": seed}
                for times in (first_resets, resets):
                    began = time.thread_time()
                    environment.reset(**chosen)
                    times.append(time.thread_time() - began)
                message = solve(generate(family, level, seed), TimedTools(environment, calls))
                began = time.thread_time()
                environment.finish(message)
                finishes.append(time.thread_time() - began)
                steps.append(environment.state.step_count)
    return {
        "calls": len(calls),
        "call_ms": _milliseconds(calls),
        "first_reset_ms": _milliseconds(first_resets),
        "further_reset_ms": _milliseconds(resets),
        "finish_ms": _milliseconds(finishes),
        "most_steps": max(steps),
        "database_kb": _database_kb(environment),
    }


def _database_kb(environment: CalendarEnvironment) -> float:
    """How large a session's database is. SQLite's pages are not Python's memory: they are counted by SQLite."""
    environment.reset(task="move_meeting", level="hard", task_seed=1)
    store = environment._store
    assert store is not None
    pages, size = (store.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return round(pages * size / 1024, 1)


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        name: round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="What the calendar environment costs.")
    parser.add_argument("--seeds", type=int, default=1, help="tasks of each family and level")
    print(json.dumps(measure(parser.parse_args(arguments).seeds), indent=2))


if __name__ == "__main__":
    main()
