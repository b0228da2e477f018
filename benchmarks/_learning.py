"""Whether a tiny model learns an environment: the quickstart, whole, on each of several seeds.

For each seed: the warm start, an evaluation, GRPO through recipes/grpo.py, an evaluation; sampled and greedy, each on
episodes that training has not seen, with a 95% interval. Each seed's result says when and at which commit it was
measured; the seeds that a call does not name keep theirs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

from _record import RESULTS, Target, commit, record

ROOT = Path(__file__).parents[1]


def measure_learning(
    name: str,
    config: str,
    targets_of: Callable[[dict[str, Any]], list[Target]],
    *,
    seeds: list[int],
    references: Mapping[str, float] | None = None,
) -> None:
    """Run an experiment on each seed that the command line names, and store what was found.

    Args:
        name: The benchmark's name.
        config: The experiment's file, from the repository's root.
        targets_of: What one seed's result is held against.
        seeds: The seeds to run where the command line names none.
        references: Exact mean returns by name, to be stored beside the seeds' results.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    parser.add_argument("--output", default=f"outputs/{name}")
    arguments, settings = parser.parse_known_args()
    quickstart = recipe("quickstart").quickstart

    stored = RESULTS / f"{name}.json"
    for seed in arguments.seeds:
        folder = Path(arguments.output, f"seed_{seed}")
        spent = cpu_seconds()
        found = quickstart(
            str(ROOT / config),
            [
                *("--seed", str(seed), "--output_dir", f"{folder}/grpo"),
                *("--model_name_or_path", f"{folder}/warm_start", *settings),
            ],
        )
        # Read now and not before: another seed may have been measured at the same time.
        results: dict[str, Any] = json.loads(stored.read_text())["results"] if stored.exists() else {}
        results[f"seed_{seed}"] = {
            "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "commit": commit(),
            "cpu_seconds": round(cpu_seconds() - spent, 1),
            "load_average_15min": round(os.getloadavg()[2], 2),
            "mean_return_while_training": training_curve(folder / "grpo" / "trainer_state.json"),
            **found,
        }
        found_so_far = {key: results[key] for key in sorted(results) if key.startswith("seed_")}
        targets = [target for found in found_so_far.values() for target in targets_of(found)]
        stored_now = {**({"exact_returns": dict(references)} if references else {}), **found_so_far}
        record(name, stored_now, targets, ["openenv-trl", "trl", "transformers", "torch"])


def cpu_seconds() -> float:
    """Seconds of CPU that this process and its ended children have used; other work on the machine does not count."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def training_curve(state: Path, points: int = 20) -> dict[str, float]:
    """The mean reward of the training batches, by the last step of each stretch of the run.

    Args:
        state: The trainer's ``trainer_state.json``.
        points: Stretches.
    """
    log: list[Mapping[str, Any]] = json.loads(state.read_text())["log_history"]
    rewards = [(int(entry["step"]), float(entry["reward"])) for entry in log if entry.get("reward") is not None]
    width = max(1, len(rewards) // points)
    stretches = [rewards[start : start + width] for start in range(0, len(rewards), width)]
    return {str(each[-1][0]): round(sum(reward for _, reward in each) / len(each), 4) for each in stretches}


def recipe(name: str) -> ModuleType:
    """The recipe as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "recipes" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
