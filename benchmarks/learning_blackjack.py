"""Does a tiny model learn blackjack? The quickstart, whole, on each of several seeds.

    python benchmarks/learning_blackjack.py [--seeds 0 1 2] [--setting value ...]

For each seed: the warm start, an evaluation, GRPO through recipes/grpo.py, an evaluation; sampled and greedy, each on
``evaluation_episodes`` hands that training has not seen, with a 95% interval. Always standing is worth -0.1864, optimal
play -0.0466 (exact values: `blackjack_env.exact`).
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from _record import Target, record

ROOT = Path(__file__).parents[1]
CONFIG = "configs/blackjack_cpu.yaml"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", default="outputs/learning_blackjack")
    arguments, settings = parser.parse_known_args()
    quickstart = recipe("quickstart").quickstart

    results: dict[str, Any] = {}
    targets: list[Target] = []
    for seed in arguments.seeds:
        folder = f"{arguments.output}/seed_{seed}"
        found = quickstart(
            str(ROOT / CONFIG),
            [
                *("--seed", str(seed), "--output_dir", f"{folder}/grpo"),
                *("--model_name_or_path", f"{folder}/warm_start", *settings),
            ],
        )
        results[f"seed_{seed}"] = found
        sampled, greedy = found["after"]
        low = sampled["interval_95"][0]
        minutes = sum(found["seconds"].values()) / 60
        targets += [
            Target(f"seed {seed}: sampled play, low end of the 95% interval (required)", low, ">= -0.15"),
            Target(f"seed {seed}: sampled play, mean return (goal)", sampled["mean_return"], ">= -0.10"),
            Target(f"seed {seed}: greedy play, mean return (goal)", greedy["mean_return"], ">= -0.08"),
            Target(f"seed {seed}: minutes after the install", minutes, "< 12"),
        ]
    record("learning_blackjack", results, targets, ["openenv-trl", "trl", "transformers", "torch"])


def recipe(name: str) -> ModuleType:
    """The recipe as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "recipes" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
