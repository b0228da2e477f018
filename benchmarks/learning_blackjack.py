"""Does a tiny model learn blackjack? The quickstart, whole, on each of several seeds.

    python benchmarks/learning_blackjack.py [--seeds 0 1 2] [--setting value ...]

For each seed: the warm start, an evaluation, GRPO through recipes/grpo.py, an evaluation; sampled and greedy, each on
``evaluation_episodes`` hands that training has not seen, with a 95% interval. Always standing is worth -0.1864, optimal
play -0.0466 (exact values: `blackjack_env.exact`). Each seed's result says when and at which commit it was measured;
the seeds that a call does not name keep theirs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

from _record import RESULTS, Target, commit, record

ROOT = Path(__file__).parents[1]
CONFIG = "configs/blackjack_cpu.yaml"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", default="outputs/learning_blackjack")
    arguments, settings = parser.parse_known_args()
    quickstart = recipe("quickstart").quickstart

    stored = RESULTS / "learning_blackjack.json"
    results: dict[str, Any] = json.loads(stored.read_text())["results"] if stored.exists() else {}
    for seed in arguments.seeds:
        folder = f"{arguments.output}/seed_{seed}"
        found = quickstart(
            str(ROOT / CONFIG),
            [
                *("--seed", str(seed), "--output_dir", f"{folder}/grpo"),
                *("--model_name_or_path", f"{folder}/warm_start", *settings),
            ],
        )
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        results[f"seed_{seed}"] = {"when": when, "commit": commit(), **found}
        found_so_far = dict(sorted(results.items()))
        targets = [target for found in found_so_far.values() for target in targets_of(found)]
        record("learning_blackjack", found_so_far, targets, ["openenv-trl", "trl", "transformers", "torch"])


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
