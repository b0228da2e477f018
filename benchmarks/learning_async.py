"""Does a tiny model learn blackjack through ``AsyncGRPOTrainer``, while episodes are played by an inference server?

    python benchmarks/learning_async.py [--seeds 0] [--setting value ...]

For each seed: the warm start, an evaluation, recipes/async_grpo.py whole (environment server, inference server, worker,
TRL's trainer), an evaluation; sampled and greedy, each on ``--episodes`` hands that training has not seen, with a 95%
interval. Always standing is worth -0.1864, optimal play -0.0466 (exact values: `blackjack_env.exact`). CPU seconds are
of this process and all that it started, since wall-clock seconds say little on a shared machine. Each seed's result
says when and at which commit it was measured; the seeds that a call does not name keep theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from _record import RESULTS, Target, commit, record
from learning_blackjack import recipe

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "configs" / "async_grpo" / "blackjack_cpu.yaml"
_WINDOW = 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--output", default="outputs/learning_async")
    parser.add_argument("--episodes", type=int, default=8000)
    arguments, settings = parser.parse_known_args()
    os.chdir(ROOT)

    stored = RESULTS / "learning_async.json"
    results: dict[str, Any] = json.loads(stored.read_text())["results"] if stored.exists() else {}
    for seed in arguments.seeds:
        found = measure(seed, f"{arguments.output}/seed_{seed}", settings, arguments.episodes)
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        results[f"seed_{seed}"] = {"when": when, "commit": commit(), **found}
        results = dict(sorted(results.items()))
        targets = [target for each in results.values() for target in targets_of(each)]
        record("learning_async", results, targets, ["openenv-trl", "trl", "transformers", "torch"])


def measure(seed: int, folder: str, settings: list[str], episodes: int) -> dict[str, Any]:
    """One seed: before, training, after."""
    module = recipe("async_grpo")
    from trl import TrlParser

    from openenv_trl.training import WarmStartSettings, disable_progress_bars, open_servers, warm_start

    parser = TrlParser((module.EnvironmentArguments, module.AsyncGRPOConfig, module.InferenceArguments))
    model_path = f"{folder}/warm_start"
    environment, training, inference = parser.parse_args_and_config(
        [
            *("--config", str(CONFIG), "--seed", str(seed), "--output_dir", f"{folder}/grpo"),
            *("--model_name_or_path", model_path, "--weight_folder", f"{folder}/weights", *settings),
        ]
    )
    disable_progress_bars()
    seconds: dict[str, float] = {}
    limits = environment.limits(training.max_completion_length)
    with open_servers(environment) as base_urls:
        if not Path(model_path, "config.json").exists():
            with timed(seconds, "warm_start"):
                chosen = WarmStartSettings.from_arguments(environment, seed=seed)
                warm_start(model_path, base_urls, environment.load_dataset(), chosen, limits=limits)
        with timed(seconds, "evaluation_before"):
            before = evaluated("before", model_path, environment, limits, base_urls, seed, episodes)
    with timed(seconds, "grpo"):
        groups = module.main(environment, training, inference)
    with open_servers(environment) as base_urls, timed(seconds, "evaluation_after"):
        after = evaluated("after", training.output_dir, environment, limits, base_urls, seed, episodes)
    log = json.loads(Path(training.output_dir, "trainer_state.json").read_text())["log_history"]
    return {
        "seed": seed,
        "steps": training.max_steps,
        "rows_per_step": training.per_device_train_batch_size,
        "max_staleness": training.max_staleness,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "groups": groups,
        "staleness_mean": mean(log, "sample/staleness_mean"),
        "probability_ratio_mean": mean(log, "ratio"),
        f"training_reward_by_{_WINDOW}_steps": windows(log),
        "before": before,
        "after": after,
    }


def evaluated(
    label: str, path: str, environment: Any, limits: Any, base_urls: list[str], seed: int, episodes: int
) -> list[dict[str, Any]]:
    """The model's mean return, sampled and greedy."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from openenv_trl.evaluation import evaluate
    from openenv_trl.rollout import SamplingParameters
    from openenv_trl.training import TransformersPolicy
    from openenv_trl.training.tasks import tasks_from_rows

    torch.manual_seed(seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(path, padding_side="left")
    policy = TransformersPolicy(AutoModelForCausalLM.from_pretrained(path).eval(), tokenizer)
    tasks = tasks_from_rows(environment.load_dataset(), episodes, seeds=("evaluation", seed))
    return [
        evaluate(
            f"{label}, {'greedy' if greedy else 'sampled'}",
            policy,
            tokenizer,
            base_urls,
            tasks,
            sampling=SamplingParameters(greedy=greedy),
            limits=limits,
            concurrency=1024,
            unfinished_reward=environment.unfinished_reward,
        ).as_json()
        for greedy in (False, True)
    ]


def targets_of(found: dict[str, Any]) -> list[Target]:
    """What one seed's result is held against."""
    seed = found["seed"]
    sampled = found["after"][0]
    gain = sampled["interval_95"][0] - found["before"][0]["interval_95"][1]
    minutes = found["seconds"]["grpo_cpu"] / 60
    return [
        Target(f"seed {seed}: sampled play, mean return", sampled["mean_return"], "> -0.20"),
        Target(f"seed {seed}: sampled play, low end after less high end before (95% intervals)", round(gain, 4), "> 0"),
        Target(f"seed {seed}: CPU minutes of training, all processes", round(minutes, 2), "< 15"),
    ]


def mean(log: list[dict[str, Any]], name: str) -> float:
    """The mean of a logged number over all steps."""
    values = [float(entry[name]) for entry in log if entry.get(name) is not None]
    return round(sum(values) / len(values), 5)


def windows(log: list[dict[str, Any]]) -> list[float]:
    """The mean training reward of each so many steps."""
    rewards = [float(entry["reward"]) for entry in log if entry.get("reward") is not None]
    parts = [rewards[i : i + _WINDOW] for i in range(0, len(rewards), _WINDOW)]
    return [round(sum(part) / len(part), 4) for part in parts]


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Generator[None]:
    """Put a block's wall-clock and CPU seconds into a dict."""
    started, used = time.monotonic(), cpu_seconds()
    yield
    seconds[name], seconds[f"{name}_cpu"] = time.monotonic() - started, cpu_seconds() - used


def cpu_seconds() -> float:
    """CPU seconds of this process and of the children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
