"""Scores of scripted agents on every family and level, as a Markdown table: ``python -m calendar_env.scores``.

The solver acts through the tools as a model would. "Careless" is the mean over solvers with one flaw each (the right
time on the wrong clock, the whole series for one date, ...), of those whose flaw came to bear.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from statistics import mean

from calendar_env.tasks import FAMILIES, LEVELS, generate
from calendar_env.tasks.agents import CARELESS, act_at_random, destroy, do_nothing
from calendar_env.tasks.playing import play, prepared
from calendar_env.tasks.solvers import solve

BASELINES = {"solver": solve, "nothing": do_nothing, "random": act_at_random, "destructive": destroy}
"""Agents by the names of their columns."""


@dataclass
class Scores:
    """What the agents got on one family and level.

    Attributes:
        values: Their scores by agent, and those of careless solvers by their flaw.
    """

    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, agent: str, score: float) -> None:
        """Note one score."""
        self.values.setdefault(agent, []).append(score)

    def mean_of(self, agents: Sequence[str]) -> float | None:
        """The mean over all scores of these agents; None where there are none."""
        found = [score for agent in agents for score in self.values.get(agent, ())]
        return mean(found) if found else None


def measure(family: str, level: str, seeds: Sequence[int], *, careless: bool = True) -> Scores:
    """Have all agents play the tasks of a family, a level and these seeds."""
    scores = Scores()
    for seed in seeds:
        task = generate(family, level, seed)
        start = prepared(task)
        for name, agent in BASELINES.items():
            scores.add(name, play(task, agent, start=start).value)
        for flawed in CARELESS if careless else ():
            value = play(task, flawed, start=start).value
            if flawed.committed:
                scores.add(flawed.name, value)
    return scores


def table(measured: dict[tuple[str, str], Scores]) -> str:
    """The scores as Markdown."""
    flaws = [each.name for each in CARELESS]
    lines = ["| family | level | solver | careless | nothing | random | destructive |", "|---|---|--:|--:|--:|--:|--:|"]
    for (family, level), scores in measured.items():
        cells = [scores.mean_of(names) for names in (["solver"], flaws, ["nothing"], ["random"], ["destructive"])]
        lines.append(f"| {family} | {level} | " + " | ".join("" if c is None else f"{c:.2f}" for c in cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m calendar_env.scores", description="Scores of scripted agents.")
    parser.add_argument("--seeds", type=int, default=10, help="tasks of each family and level")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY")
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS, metavar="LEVEL")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument(
        "--no-careless", action="store_true", help="leave out careless solvers, who take most of the time"
    )
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cases = [(family, level) for family in options.families for level in options.levels]
    with ProcessPoolExecutor(options.workers) as pool:
        futures = {case: pool.submit(measure, *case, seeds, careless=not options.no_careless) for case in cases}
        print(table({case: future.result() for case, future in futures.items()}))


if __name__ == "__main__":
    main()
