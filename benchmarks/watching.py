"""What it costs to watch a batch, in CPU seconds of the process that plays it.

The episodes are those of `engine_overhead`: in memory, ten steps of 10 ms each. They are played without an observer,
with `BatchProgress` (the counting alone), with `RolloutWatch` in a terminal (counting, and a panel twice a second) and
in a log (counting, and a line every ten seconds), round after round. Then an event and a drawing by themselves: where
the machine is busy, the differences of whole runs drown in its noise, and those do not.

    python benchmarks/watching.py [--rounds 9] [--quick]
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from typing import Any

import anyio
from _record import Target, record, spread
from engine_overhead import PROMPT, STEP_S, TOOL, TURNS, MemoryPool, SaysOneThing
from rich.console import Console

from openenv_trl.rollout import Phase, RolloutEngine, RolloutLimits, RolloutObserver, Task
from openenv_trl.rollout.watch import BatchProgress, RolloutWatch, progress_panel
from openenv_trl.training.tiny_policy import make_tokenizer

EPISODES = 256
EVENTS_PER_TURN = 3
"""Generating, stepping, the turn's end."""


def console(*, terminal: bool) -> Console:
    """One that nobody reads."""
    return Console(file=io.StringIO(), force_terminal=terminal, width=100)


WAYS: dict[str, Callable[[], RolloutObserver | None]] = {
    "unwatched": lambda: None,
    "counted": BatchProgress,
    "terminal": lambda: RolloutWatch(console(terminal=True)),
    "log": lambda: RolloutWatch(console(terminal=False)),
}


def play(tokenizer: Any, episodes: int, observer: RolloutObserver | None) -> tuple[float, float]:
    """Play once; CPU seconds and wall seconds."""

    async def run() -> tuple[float, float]:
        limits = RolloutLimits(max_turns=TURNS, max_completion_tokens=100_000)
        engine = RolloutEngine(MemoryPool(TURNS, STEP_S), tokenizer, limits=limits)
        await engine.prepare()
        policy = SaysOneThing(engine.template)
        tasks = [Task(PROMPT, {"seed": seed}, index=seed) for seed in range(episodes)]
        cpu, wall = time.process_time(), time.perf_counter()
        await engine.run(tasks, policy, observer=observer)
        return time.process_time() - cpu, time.perf_counter() - wall

    return anyio.run(run)


def event_us(observer: Any, episodes: int, events: int = 200_000) -> float:
    """CPU microseconds of one event."""
    observer.run_started(episodes, 0.0)
    for index in range(episodes):
        observer.episode_started(index, 0.0)
    began = time.process_time()
    for event in range(events):
        phase = Phase.STEPPING if event // episodes % 2 else Phase.GENERATING
        observer.phase_changed(event % episodes, phase, float(event))
    spent = time.process_time() - began
    observer.run_ended(float(events))
    return spent / events * 1e6


def drawing_ms(episodes: int, drawings: int = 50) -> float:
    """CPU milliseconds of one drawing of the panel."""
    progress, screen = BatchProgress(), console(terminal=True)
    progress.run_started(episodes, 0.0)
    for index in range(episodes):
        progress.episode_started(index, 0.0)
        progress.phase_changed(index, Phase.STEPPING, 1.0)
    began = time.process_time()
    for _ in range(drawings):
        screen.print(progress_panel(progress.view(2.0)))
    return (time.process_time() - began) / drawings * 1e3


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="two rounds of few episodes, and nothing stored")
    options = parser.parse_args()
    rounds, episodes = (2, 16) if options.quick else (options.rounds, EPISODES)
    tokenizer = make_tokenizer([PROMPT[0]["content"]], [TOOL])
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):  # the first warms up
        for way, observer in WAYS.items():
            figures = play(tokenizer, episodes, observer())
            if number:
                spent[way].append(figures)
    least = {way: min(cpu for cpu, _ in each) for way, each in spent.items()}
    event, drawing = event_us(RolloutWatch(console(terminal=False)), episodes), drawing_ms(episodes)
    of_events = EVENTS_PER_TURN * TURNS * episodes * event / 1e6 / least["unwatched"]
    results = {
        "episodes": episodes,
        "cpu_s": {way: spread([cpu for cpu, _ in each]) for way, each in spent.items()},
        "wall_s": {way: spread([wall for _, wall in each]) for way, each in spent.items()},
        "event_us": round(event, 3),
        "drawing_ms": round(drawing, 3),
        "share_of_engine_cpu_events": round(of_events, 4),
        "share_of_one_core_drawing": round(2 * drawing / 1e3, 4),
        "share_of_engine_cpu_counted_least_of_rounds": round(least["counted"] / least["unwatched"] - 1, 4),
    }
    if options.quick:
        print(results)
        return
    targets = [
        Target("CPU of the events, as a share of the engine's own", round(of_events, 4), "<= 0.05"),
        Target("CPU of the panel, as a share of one core", round(2 * drawing / 1e3, 4), "<= 0.02"),
    ]
    record("watching", results, targets, ["openenv-trl", "rich"])


if __name__ == "__main__":
    main()
