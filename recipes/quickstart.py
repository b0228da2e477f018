"""The main job from end to end, in minutes on a CPU: a tiny language model learns a game over real environment servers.

    python recipes/quickstart.py configs/blackjack_cpu.yaml --seed 0

Starts nothing but what the experiment's file says: environment servers as child processes, a tiny model warm-started on
random games, GRPO through recipes/grpo.py and TRL's own trainer, and an evaluation before and after. Ends with a table,
a learning curve and the trajectories. Settings after the file override it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from rich.console import Console

from openenv_trl.evaluation import EvaluationReport, comparison_table
from openenv_trl.evaluation.command import evaluate_experiment
from openenv_trl.evaluation.curve import learning_curve
from openenv_trl.experiment import Experiment, load_experiment, recipe_path
from openenv_trl.providers.owned import run_owned
from openenv_trl.rollout import ProvidedServers, Servers
from openenv_trl.training import WarmStartSettings, disable_progress_bars, open_servers, warm_start
from openenv_trl.training.launch import launch_command

console = Console()


def quickstart(config: str, overrides: list[str]) -> dict[str, object]:
    """Run the experiment and return its results."""
    experiment = load_experiment(config, overrides)
    environment, training = experiment.environment, experiment.training
    output = Path(training.output_dir)
    policy = Path(experiment.model.model_name_or_path)
    output.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    disable_progress_bars()

    with open_servers(environment) as servers:
        console.rule("[bold]1  warm start: learn the protocol, play at random")
        with timed(seconds, "warm_start"):
            warm_start(
                policy,
                servers,
                environment.load_dataset(),
                WarmStartSettings.from_arguments(environment, seed=training.seed),
                limits=environment.limits(training.max_completion_length),
            )
        console.rule("[bold]2  evaluation before")
        with timed(seconds, "evaluation_before"):
            before = evaluated(experiment, policy, "before", servers)

        console.rule("[bold]3  GRPO: recipes/grpo.py with TRL's trainer")
        with timed(seconds, "grpo"):
            # The same servers; what a provider starts, the recipe starts for itself.
            urls = [] if isinstance(servers, ProvidedServers) else ["--environment_urls", *servers]
            command = launch_command(recipe_path("grpo"), ["--config", config, *overrides, *urls])
            if run_owned(command, env={**os.environ, "PYTHONWARNINGS": "ignore"}) != 0:
                sys.exit("GRPO failed; its own message is above.")
        console.rule("[bold]4  evaluation after")
        with timed(seconds, "evaluation_after"):
            after = evaluated(experiment, output, "after", servers)

    curve = output.parent / "learning_curve.png"
    log = json.loads((output / "trainer_state.json").read_text())["log_history"]
    learning_curve(
        curve,
        log,
        title=f"{Path(config).stem}: GRPO on a CPU, {seconds['grpo'] / 60:.1f} minutes",
        before=before,
        after=after,
        references=environment.reference_returns,
    )
    results: dict[str, object] = {
        "seed": training.seed,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "before": [report.as_json() for report in before],
        "after": [report.as_json() for report in after],
    }
    (output.parent / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    console.rule("[bold]result")
    console.print(comparison_table("Mean return", [*before, *after], environment.reference_returns))
    total = sum(seconds.values())
    phases = ", ".join(f"{name.replace('_', ' ')} {value:.0f} s" for name, value in seconds.items())
    console.print(f"{total / 60:.1f} minutes: {phases}")
    console.print(
        f"learning curve: {curve}\ntrajectories:   {output / 'trajectories'} (Parquet)\nmodel:          {output}"
    )
    return results


def evaluated(experiment: Experiment, model: Path, label: str, servers: Servers) -> list[EvaluationReport]:
    """The model's mean return, sampled and greedy."""
    return evaluate_experiment(experiment, model=model, label=label, base_urls=servers, quiet=True)


class timed:
    """Adds a block's wall-clock seconds to a dict."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = time.monotonic() - self._started


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python recipes/quickstart.py CONFIG [--setting value ...]")
    quickstart(sys.argv[1], sys.argv[2:])
