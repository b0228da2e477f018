"""The commands that look at stored trajectories: show them, and play them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from openenv_trl.errors import ConfigurationError
from openenv_trl.settings_errors import with_guess

if TYPE_CHECKING:
    from openenv_trl.rollout.groups import TrajectoryGroup

trajectories_app = typer.Typer(
    help="Look at stored trajectories.", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)

StoredPath = Annotated[Path, typer.Argument(help="A Parquet file of trajectories, or a directory of them.")]
_SHOWN = 5

T = TypeVar("T")


@trajectories_app.callback()
def _trajectories() -> None:
    """Look at stored trajectories."""


@trajectories_app.command()
def show(
    path: StoredPath,
    group: Annotated[
        int | None, typer.Option(min=0, help="Show the episodes of this group: its number in the table.")
    ] = None,
    episode: Annotated[int | None, typer.Option(min=0, help="Show this episode's conversation: its number.")] = None,
    scale_rewards: Annotated[str, typer.Option(help="What advantages are divided by: group, batch or none.")] = "group",
    group_size: Annotated[
        int | None, typer.Option(min=1, help="So many in a row are a group, where tasks name none.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="List only the groups of this environment, of a run that had several.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Groups to list at most, the last ones.")] = 40,
) -> None:
    """Show the groups; the episodes of one; or one conversation, with marks of who wrote what."""
    from rich.console import Console

    from openenv_trl.rollout.groups import group_trajectories
    from openenv_trl.rollout.store import read_parquet
    from openenv_trl.rollout.trajectory_view import conversation, group_table, groups_table

    console = Console(highlight=False)
    trajectories = read_parquet(path)
    groups = group_trajectories(trajectories, scale_rewards=scale_rewards, group_size=group_size)
    if episode is not None:
        members = trajectories if group is None else _chosen(groups, group, "group").trajectories
        console.print(conversation(_chosen(members, episode, "episode")))
    elif group is not None:
        console.print(group_table(_chosen(groups, group, "group")))
    else:
        # A group keeps its number where only some are listed.
        listed = _played_in(environment, groups)
        shown = [each for number in listed for each in groups[number].trajectories]
        ends = Counter(trajectory.end_reason.value for trajectory in shown)
        counts = ", ".join(f"{reason} {count}" for reason, count in ends.most_common())
        console.print(f"{len(shown)} trajectories: {counts or 'none'}")
        first = max(len(listed) - limit, 0)
        console.print(groups_table([groups[number] for number in listed[first:]], numbers=listed[first:]))
        if first:
            console.print(f"and {first} groups before these: --limit {len(listed)} lists all.")


def replay(
    path: StoredPath,
    env_url: Annotated[
        list[str] | None,
        typer.Option(help="A running server of the environment; may be given several times. NAME=URL in a mixed run."),
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            help="Or the environment's package folder, whose server is started here. NAME=FOLDER, several times, where "
            "the run had several environments."
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 64,
    limit: Annotated[int | None, typer.Option(min=1, help="Play only the last so many trajectories.")] = None,
) -> None:
    """Play stored trajectories again, and report the first differences. Exit code 1 where any is not the same."""
    from openenv_trl.providers import ProcessProvider
    from openenv_trl.rollout.play import run_blocking
    from openenv_trl.rollout.replay import ReplayOutcome
    from openenv_trl.rollout.replay_servers import replay_over_servers
    from openenv_trl.rollout.store import read_parquet

    if bool(environment) == bool(env_url):
        raise ConfigurationError("Say where to play: --env-url URL of a running server, or --environment FOLDER.")
    stored = read_parquet(path)
    trajectories = stored[-limit:] if limit else stored
    if not trajectories:
        raise ConfigurationError(f"There are no trajectories in {path}.")
    given = _by_name([*(env_url or ()), *(environment or ())], {each.environment for each in trajectories})
    with ExitStack() as stack:
        if environment:
            settings = {"MAX_CONCURRENT_ENVS": str(concurrency)}
            given = {
                name: [
                    url
                    for folder in folders
                    for url in stack.enter_context(ProcessProvider(folder, env_vars=settings)).base_urls
                ]
                for name, folders in given.items()
            }
        run_blocking(_check_servers, [url for urls in given.values() for url in urls])
        replays = replay_over_servers(trajectories, given.get("", given), concurrency=concurrency)
    outcomes = Counter(each.outcome for each in replays)
    actions = sum(each.actions for each in replays)
    typer.echo(
        f"{len(replays)} trajectories, {actions} actions: "
        + ", ".join(f"{outcomes[each]} {each.value.replace('_', ' ')}" for each in ReplayOutcome if outcomes[each])
    )
    wrong = [(n, each) for n, each in enumerate(replays) if each.difference or each.problem]
    for number, each in wrong[:_SHOWN]:
        arguments = ", ".join(f"{name}={value!r:.40}" for name, value in each.trajectory.task.reset.items())
        place = f"episode {len(stored) - len(replays) + number}, reset({arguments})"
        typer.echo(f"  {place}: {each.difference or each.problem}")
    if len(wrong) > _SHOWN:
        typer.echo(f"  and {len(wrong) - _SHOWN} more")
    if wrong:
        raise typer.Exit(1)


async def _check_servers(urls: Sequence[str]) -> None:
    from openenv_trl.client import fetch_health

    for url in urls:
        await fetch_health(url)


def _by_name(given: Sequence[str], environments: set[str]) -> dict[str, list[str]]:
    """Servers or folders by the environment's name, "" where there is one environment and no name was given.

    Raises:
        ConfigurationError: There are several environments and it is not said which is where.
    """
    names = environments - {""}
    found: dict[str, list[str]] = {}
    for text in given:
        name, _, place = text.partition("=")
        name, place = (name, place) if name in names else ("", text)
        found.setdefault(name, []).append(place)
    missing = sorted(names - found.keys())
    if missing and (len(names) > 1 or "" not in found):
        raise ConfigurationError(
            f"The trajectories were played in the environments {sorted(names)}: say where to find each, as "
            + " ".join(f"--environment {name}=FOLDER" for name in sorted(names))
            + " (or --env-url NAME=URL)."
        )
    return found


def _played_in(environment: str | None, groups: Sequence[TrajectoryGroup]) -> list[int]:
    """The numbers of the groups with an episode in this environment; of all where none is named.

    Raises:
        ConfigurationError: There is no such group.
    """
    played = [{each.environment for each in group.trajectories} for group in groups]
    found = [number for number, names in enumerate(played) if environment is None or environment in names]
    if environment is not None and not found:
        names = sorted(set[str]().union(*played) - {""})
        told = f"there are those of {', '.join(names)}" if names else "these name no environment"
        raise ConfigurationError(
            f"There are no trajectories of the environment {with_guess(environment, names)}: {told}."
        )
    return found


def _chosen(of: Sequence[T], number: int, what: str) -> T:
    if number >= len(of):
        raise ConfigurationError(f"There is no {what} {number}: there are {len(of)}, counted from 0.")
    return of[number]
