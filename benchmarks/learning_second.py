"""Does a tiny model learn a second environment, with three tools and nine turns: catch, of OpenSpiel?

    python benchmarks/learning_second.py [--seeds 0 1] [--setting value ...]

For each seed: the warm start, an evaluation, GRPO through recipes/grpo.py, an evaluation; sampled and greedy, each on
``evaluation_episodes`` matches, with a 95% interval. The one reward comes with the last of nine moves: 1 for a caught
ball, -1 for a missed one. Random play is worth -0.6 and the best 1, computed here (`openspiel_env.exact`). The ball's
column is all that differs between matches, so that training meets every beginning: what is measured is learning from a
late reward, not playing what was never seen. The seeds that a call does not name keep their results.
"""

from __future__ import annotations

from typing import Any

from _learning import measure_learning
from _record import Target
from openspiel_env.exact import exact_returns


def main() -> None:
    exact = exact_returns("catch")
    references = {"random": round(exact.random, 6), "best": round(exact.best, 6), "worst": round(exact.worst, 6)}
    measure_learning("learning_second", "configs/catch_cpu.yaml", targets_of, seeds=[0, 1], references=references)


def targets_of(found: dict[str, Any]) -> list[Target]:
    """What one seed's result is held against."""
    seed = found["seed"]
    before, _ = found["before"]
    sampled, greedy = found["after"]
    wall = sum(found["seconds"].values()) / 60
    shared = f"{wall:.0f} minutes on the clock, with {found['load_average_15min']:g} processes that wanted a processor"
    return [
        Target(
            f"seed {seed}: warm-started, sampled play, high end of the 95% interval",
            before["interval_95"][1],
            "<= -0.4",
        ),
        Target(
            f"seed {seed}: sampled play, low end of the 95% interval (required)", sampled["interval_95"][0], ">= 0.5"
        ),
        Target(f"seed {seed}: sampled play, mean return (goal)", sampled["mean_return"], ">= 0.8"),
        Target(f"seed {seed}: greedy play, mean return (goal)", greedy["mean_return"], ">= 0.95"),
        Target(f"seed {seed}: minutes of CPU, evaluations included", found["cpu_seconds"] / 60, "< 8", shared),
    ]


if __name__ == "__main__":
    main()
