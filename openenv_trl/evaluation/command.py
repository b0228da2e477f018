"""Evaluate the model of an experiment over its environment's servers, and show and store what was found."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from openenv_trl.errors import ConfigurationError
from openenv_trl.evaluation.report import EvaluationReport, comparison_table
from openenv_trl.evaluation.run import Progress, evaluate
from openenv_trl.rollout import Policy, SamplingParameters
from openenv_trl.rollout.policy import MessagePolicy
from openenv_trl.rollout.servers import Servers, most_sessions
from openenv_trl.rollout.watch import RolloutWatch
from openenv_trl.training.tasks import tasks_from_rows

if TYPE_CHECKING:
    from openenv_trl.experiment import Experiment


def evaluate_experiment(
    experiment: Experiment,
    *,
    model: str | Path | None = None,
    episodes: int | None = None,
    modes: Sequence[bool] = (False, True),
    label: str | None = None,
    base_urls: Servers | None = None,
    output: Path | None = None,
    quiet: bool = False,
    endpoint: str | None = None,
    endpoint_model: str | None = None,
    api_key: str | None = None,
) -> list[EvaluationReport]:
    """Play an experiment's environment with a model.

    Each episode is a row of the experiment's data set, in turn. Where the data set is only a prompt, each gets a seed
    that no training run has; a data set with seeds of its own keeps them (see ``evaluation_split``).

    Args:
        experiment: Names the environment, its limits, and what to play.
        model: Folder or hub name of the model; the experiment's own if None.
        episodes: How many to play in each mode; ``evaluation_episodes`` if None.
        modes: For each, whether to take the likeliest token (True) or to sample at temperature 1.
        label: What the model is called in the table; the last part of its path if None.
        base_urls: Servers that run already, or what starts them; the experiment's are started if None.
        output: Write the reports there as JSON.
        quiet: Print no table.
        endpoint: Address of an OpenAI-compatible chat endpoint, which plays in place of the model.
        endpoint_model: The model's name there.
        api_key: Its key, where it asks for one.

    Returns:
        One report for each mode.

    Raises:
        ConfigurationError: There is no model at the path, an endpoint without a model's name, or several environments.
        ConnectionFailedError: None of the servers that are to run already answers.
    """
    from openenv_trl.training.servers import check_named_servers, open_servers, refuse_several_environments

    environment = experiment.environment
    if base_urls is None:
        refuse_several_environments(environment)
        check_named_servers(environment)  # before a model is loaded, which takes longer
    if endpoint is not None:
        policy, tokenizer, name = _endpoint_policy(endpoint, endpoint_model, api_key), None, str(endpoint_model)
    else:
        policy, tokenizer, name = _local_policy(experiment, model)
    count = episodes or environment.evaluation_episodes
    tasks = tasks_from_rows(
        environment.load_dataset(for_evaluation=True),
        count,
        seeds=("evaluation", experiment.training.seed),
        keep_seeds=environment.dataset_name is not None,
    )
    reports: list[EvaluationReport] = []

    def run(servers: Servers) -> None:
        for greedy in modes:
            title = f"{label or Path(name).name}, {'greedy' if greedy else 'sampled'}"
            reports.append(
                evaluate(
                    title,
                    policy,
                    tokenizer,
                    servers,
                    tasks,
                    sampling=SamplingParameters(greedy=greedy),
                    limits=environment.limits(experiment.training.max_completion_length),
                    concurrency=min(
                        environment.evaluation_concurrency, most_sessions(servers, environment.sessions_per_server)
                    ),
                    unfinished_reward=environment.unfinished_reward,
                    chat_template_kwargs=experiment.training.chat_template_kwargs,
                    progress=None if environment.watch else _progress_lines(title),
                    observer=RolloutWatch(title=title) if environment.watch else None,
                )
            )

    if base_urls is None:
        with open_servers(environment) as servers:
            run(servers)
    else:
        run(base_urls)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps([report.as_json() for report in reports], indent=2) + "\n")
    if not quiet:
        from rich.console import Console

        Console().print(comparison_table("Evaluation", reports, environment.reference_returns))
    return reports


def _endpoint_policy(endpoint: str, model: str | None, api_key: str | None) -> MessagePolicy:
    from openenv_trl.rollout.policies import ChatPolicy, EndpointSettings

    if model is None:
        raise ConfigurationError(f"Which model of {endpoint} shall play? Name it: --endpoint-model NAME.")
    return ChatPolicy(
        endpoint, model, settings=EndpointSettings(api_key=None if api_key is None else SecretStr(api_key))
    )


def _local_policy(experiment: Experiment, model: str | Path | None) -> tuple[Policy, Any, str]:
    """The model in this process, its tokenizer, and its name."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from openenv_trl.training.policies import TransformersPolicy

    name = str(model or experiment.model.model_name_or_path)
    if experiment.environment.tiny_policy and not Path(name, "config.json").exists():
        raise ConfigurationError(f"There is no model at '{name}'. Train first: openenv-trl train {experiment.path}")
    if experiment.training.use_cpu:
        torch.set_num_threads(1)
    torch.manual_seed(experiment.training.seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(name, padding_side="left")
    loaded: Any = AutoModelForCausalLM.from_pretrained(name, dtype=experiment.model.dtype).eval()
    if torch.cuda.is_available() and not experiment.training.use_cpu:
        loaded = loaded.to("cuda")
    return TransformersPolicy(loaded, tokenizer), tokenizer, name


def _progress_lines(title: str) -> Progress:
    """A line on the terminal for each quarter of the way."""
    told = 0

    def progress(ended: int, of: int) -> None:
        nonlocal told
        quarter = 4 * ended // of
        if quarter > told:
            told = quarter
            print(f"evaluation: {title}: {ended:,}/{of:,} episodes", file=sys.stderr, flush=True)

    return progress
