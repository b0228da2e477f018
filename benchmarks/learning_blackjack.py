"""Does a tiny model learn blackjack? The quickstart, whole, on each of several seeds.

    python benchmarks/learning_blackjack.py [--seeds 0 1 2] [--setting value ...]

For each seed: the warm start, an evaluation, GRPO through recipes/grpo.py, an evaluation; sampled and greedy, each on
``evaluation_episodes`` hands that training has not seen, with a 95% interval. Always standing is worth -0.1864, optimal
play -0.0466 (exact values: `blackjack_env.exact`). Each seed's result says when and at which commit it was measured;
the seeds that a call does not name keep theirs.
"""

from __future__ import annotations

from typing import Any

from _learning import measure_learning
from _record import Target


def main() -> None:
    measure_learning("learning_blackjack", "configs/blackjack_cpu.yaml", targets_of, seeds=[0, 1, 2])


def targets_of(found: dict[str, Any]) -> list[Target]:
    """What one seed's result is held against."""
    seed = found["seed"]
    sampled, greedy = found["after"]
    minutes = sum(found["seconds"].values()) / 60
    low = sampled["interval_95"][0]
    blunt = (
        ""
        if sampled["mean_return"] >= -0.10
        else f"the greedy play of the same policy is at {greedy['mean_return']:+.4f}: it is not sharp enough yet"
    )
    return [
        Target(f"seed {seed}: sampled play, low end of the 95% interval (required)", low, ">= -0.15"),
        Target(f"seed {seed}: sampled play, mean return (goal)", sampled["mean_return"], ">= -0.10", blunt),
        Target(f"seed {seed}: greedy play, mean return (goal)", greedy["mean_return"], ">= -0.08"),
        Target(f"seed {seed}: minutes after the install", minutes, "< 12"),
    ]


if __name__ == "__main__":
    main()
