"""The commands, each a thin call into the rooms below. What is heavy is imported when its command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openenv_trl.cli.ownership_commands import prune, ps
from openenv_trl.cli.running import errors_of_files, run_here
from openenv_trl.cli.trajectory_commands import replay, trajectories_app

app = typer.Typer(
    name="openenv-trl",
    help="Train language models with TRL's GRPO on OpenEnv environments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(trajectories_app, name="trajectories")
app.command()(replay)
app.command()(ps)
app.command()(prune)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
ConfigFile = Annotated[Path, typer.Argument(help="The experiment: a YAML file such as configs/blackjack_cpu.yaml.")]


def _version(wanted: bool) -> None:
    if wanted:
        from openenv_trl import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Options of the command itself."""


def _sessions(number: int | None) -> list[str]:
    return [] if number is None else [f"MAX_CONCURRENT_ENVS={number}"]


@app.command()
def serve(
    path: Annotated[
        str | None,
        typer.Argument(help="Folder of an environment package (with openenv.yaml), module:app, or gymnasium:NAME."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for a free one.")] = 8000,
    max_concurrent_envs: Annotated[
        int | None, typer.Option(min=1, help="Sessions at once, for environments that read MAX_CONCURRENT_ENVS.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the port. [default: OPENENV_TRL_WORKERS, then 1]")
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="With a debug page at /web/.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="text, or json: one object a line.")] = "text",
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Do not serve here: write what a Kubernetes cluster is to run.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --kubernetes: print the YAML.")] = False,
    image: Annotated[str | None, typer.Option(help="With --kubernetes: the image to run.")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="With --kubernetes: pods that are kept running.")] = None,
    namespace: Annotated[
        str | None, typer.Option(help="With --kubernetes: where; the context's own if absent.")
    ] = None,
    cpus: Annotated[float | None, typer.Option(help="With --kubernetes: cores at most, a pod.")] = None,
    memory: Annotated[str | None, typer.Option(help="With --kubernetes: memory at most, a pod, such as 512m.")] = None,
    network: Annotated[str | None, typer.Option(help="With --kubernetes: open, or internal.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="With --kubernetes: a variable, NAME=VALUE.")] = None,
    spec: Annotated[Path | None, typer.Option(help="With --kubernetes: a YAML file with more settings.")] = None,
) -> None:
    """Serve an environment until interrupted."""
    if kubernetes:
        from openenv_trl.cli.kubernetes_manifests import print_manifests, variables_of

        fields = {"image": image, "replicas": replicas, "namespace": namespace, "cpus": cpus, "memory": memory}
        variables = variables_of([*(env or ()), *_sessions(max_concurrent_envs)])
        fields |= {"network": network, "env_vars": variables}
        typer.echo(print_manifests(path, spec, fields, dry_run=dry_run), nl=False)
        return
    others = {"--dry-run": dry_run or None, "--image": image, "--replicas": replicas, "--namespace": namespace}
    others |= {"--cpus": cpus, "--memory": memory, "--network": network, "--env": env, "--spec": spec}
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"{', '.join(given)}: only with --kubernetes. Add --kubernetes to write what a cluster is to run, or leave "
            "that out to serve here.",
            param_hint=given[0],
        )
    if path is None:
        raise typer.BadParameter(
            "Name the environment to serve: a folder, module:app, or gymnasium:NAME.", param_hint="PATH"
        )
    from openenv_trl.server.__main__ import main

    options = ["--host", host, "--port", str(port), "--log-level", log_level, "--log-format", log_format]
    if max_concurrent_envs is not None:
        options += ["--max-concurrent-envs", str(max_concurrent_envs)]
    if workers is not None:
        options += ["--workers", str(workers)]
    if web:
        options += ["--web"]
    raise typer.Exit(main([path, *options]))


@app.command(context_settings=_PASS_ON)
def train(
    context: typer.Context,
    config: ConfigFile,
    num_processes: Annotated[int, typer.Option(min=1, help="Training processes on this machine.")] = 1,
    accelerate_config: Annotated[
        Path | None, typer.Option(help="Configuration file of accelerate, for anything beyond one machine.")
    ] = None,
) -> None:
    """Train with GRPO: the recipe grpo.py. Further options override the file: --learning_rate 1e-3."""
    import os

    # A small model is faster on one thread; a process started below, or torch imported below, reads it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # transformers warns of a field that TRL's own defaults set
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    from openenv_trl.experiment import check_before_start, load_experiment, read_settings, recipe_path

    script, arguments = recipe_path("grpo"), ["--config", str(config), *context.args]
    if num_processes == 1 and accelerate_config is None:
        with errors_of_files(check_before_start(load_experiment(config, context.args), trains=True)):
            run_here(script, arguments)
        return

    from openenv_trl.providers.owned import run_owned
    from openenv_trl.training.launch import launch_command

    # No more than that: what a batch may be depends on the number of processes, which only those know.
    read_settings(config)
    if accelerate_config is not None and not accelerate_config.is_file():
        raise typer.BadParameter(f"There is no file '{accelerate_config}'.", param_hint="--accelerate-config")
    command = launch_command(script, arguments, num_processes=num_processes, accelerate_config=accelerate_config)
    raise typer.Exit(run_owned(command))


@app.command(name="eval", context_settings=_PASS_ON)
def evaluate(
    context: typer.Context,
    config: ConfigFile,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of the model; the experiment's if absent.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes to play; the experiment's if absent.")] = None,
    greedy: Annotated[
        bool | None, typer.Option("--greedy/--sampled", help="Play one way only; both ways if absent.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the reports there as JSON.")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible chat endpoint that plays in place of the model.")
    ] = None,
    endpoint_model: Annotated[str | None, typer.Option(help="The model's name at the endpoint.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENENV_TRL_API_KEY", help="The endpoint's key.", show_envvar=True)
    ] = None,
) -> None:
    """Measure a policy: its mean return with a 95% interval, on tasks that training has not seen."""
    from openenv_trl.evaluation.command import evaluate_experiment
    from openenv_trl.experiment import check_before_start, load_experiment

    experiment = load_experiment(config, context.args)
    played_by = endpoint if endpoint is not None else check_before_start(experiment, model)
    with errors_of_files(played_by):
        evaluate_experiment(
            experiment,
            model=model,
            episodes=episodes,
            modes=[False, True] if greedy is None else [greedy],
            output=output,
            endpoint=endpoint,
            endpoint_model=endpoint_model,
            api_key=api_key,
        )
