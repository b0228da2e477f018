"""``ps`` and ``prune``: what this package runs, and the removal of what dead owners have left."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openenv_trl.errors import ConfigurationError

if TYPE_CHECKING:
    from openenv_trl.providers.ownership.survey import Choice, Found, Survey

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_LONGEST_NAME = 48

DockerHosts = Annotated[
    list[str] | None,
    typer.Option(help="A Docker engine's address; several times for several. The docker command's own if absent."),
]
Kubernetes = Annotated[bool, typer.Option("--kubernetes", help="Look at the cluster of the kubeconfig too.")]
Namespace = Annotated[str | None, typer.Option(help="The cluster's namespace; the context's own if absent.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def ps(
    docker_host: DockerHosts = None,
    kubernetes: Kubernetes = False,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """List what this package runs: processes, containers, services, networks, volumes; whose each is."""
    import anyio

    from openenv_trl.providers.ownership.survey import opened, survey

    async def look() -> Survey:
        not_listed: list[str] = []
        async with opened(_places(docker_host, kubernetes, namespace), not_listed) as inventories:
            seen = await survey(inventories)
        seen.not_listed += not_listed
        return seen

    seen = anyio.run(look)
    if as_json:
        now = time.time()
        things = [_as_json(each, now) for each in seen.found]
        typer.echo(json.dumps({"things": things, "not_listed": seen.not_listed}))
        return
    _print_table(seen.found)
    _print_not_listed(seen)


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    owner: Annotated[
        str | None, typer.Option(help="Remove what this owner has, dead or alive: the beginning of its id.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove what living owners have too, and owners on other machines.")
    ] = False,
    older_than: Annotated[
        str | None, typer.Option(help="Only what is at least so old, such as 90s, 10m, 2h, 1d.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before the things of living owners are removed.")
    ] = False,
    docker_host: DockerHosts = None,
    kubernetes: Kubernetes = False,
    namespace: Namespace = None,
) -> None:
    """Remove what dead owners of this machine have left; nothing that this package has not started."""
    import anyio

    from openenv_trl.providers.ownership.survey import Choice

    if everything and owner is not None:
        raise typer.BadParameter("--all and --owner exclude each other.")
    choice = Choice(owner, everything, 0.0 if older_than is None else _seconds(older_than))
    places = _places(docker_host, kubernetes, namespace)
    raise typer.Exit(anyio.run(_prune, choice, places, dry_run, yes))


async def _prune(choice: Choice, places: Sequence[dict[str, Any]], dry_run: bool, yes: bool) -> int:
    from openenv_trl.providers.owner import OwnerState
    from openenv_trl.providers.ownership.survey import opened, owners_named, remove, survey

    not_listed: list[str] = []
    async with opened(places, not_listed) as inventories:
        seen = await survey(inventories)
        seen.not_listed += not_listed
        if choice.owner is not None and not owners_named(seen.found, choice.owner):
            typer.echo(f"There is no owner whose id begins with '{choice.owner}'. `openenv-trl ps` lists the owners.")
            _print_not_listed(seen)
            return 0
        now = time.time()
        chosen = [each for each in seen.found if choice.takes(each, now)]
        living = [each for each in chosen if each.owner_state is not OwnerState.DEAD]
        if dry_run or not chosen:
            _print_table(chosen)
            typer.echo(f"{len(chosen)} things would be removed." if dry_run else "There is nothing to remove.")
        elif living and not yes and not _confirmed(living):
            typer.echo("Nothing was removed.")
            return 1
        else:
            ids = {each.thing.owner.id for each in chosen}
            failures = await remove(
                inventories, lambda each: each.thing.owner.id in ids and choice.takes(each, time.time()), _tell
            )
            for failure in failures:
                typer.echo(f"error: {failure}", err=True)
            if failures:
                return 1
    _print_not_listed(seen)
    return 0


def _confirmed(living: Sequence[Found]) -> bool:
    import sys

    _print_table(living)
    if not sys.stdin.isatty():
        raise ConfigurationError("The owners of these are not known to be dead. Add --yes to remove them all the same.")
    return typer.confirm(f"The owners of these {len(living)} are not known to be dead. Remove them all the same?")


def _places(docker_hosts: Sequence[str] | None, kubernetes: bool, namespace: str | None) -> list[dict[str, Any]]:
    places: list[dict[str, Any]] = [{"type": "process"}]
    places += [{"type": "docker", "docker_host": host} for host in docker_hosts or [None]]
    if kubernetes:
        places.append({"type": "kubernetes", "namespace": namespace})
    return places


def _seconds(text: str) -> float:
    matched = _DURATION.fullmatch(text.strip())
    if matched is None:
        raise typer.BadParameter(f"'{text}' is no duration: write 90s, 10m, 2h or 1d.", param_hint="--older-than")
    return float(matched[1]) * _UNITS[matched[2] or "s"]


def _tell(each: Found) -> None:
    typer.echo(f"removed {each.thing.kind} {_cut(each.thing.name)} of {_owner(each)}")


def _as_json(each: Found, now: float) -> dict[str, Any]:
    thing, age_s = each.thing, each.age_s(now)
    owner = {"id": thing.owner.id, "pid": thing.owner.pid, "host": thing.owner.host, "state": each.owner_state.value}
    return {
        "kind": thing.kind,
        "name": thing.name,
        "id": thing.id,
        "state": thing.state,
        "age_s": None if age_s is None else round(age_s, 1),
        "lease_s": thing.lease_s,
        "place": each.place,
        "owner": owner,
    }


def _print_table(found: Sequence[Found]) -> None:
    if not found:
        return
    now = time.time()
    rows = [("KIND", "NAME", "STATE", "AGE", "OWNER", "OWNER ID", "ID")]
    for each in found:
        thing = each.thing
        age, owner_id = _age(each.age_s(now)), thing.owner.id[:12]
        rows.append((thing.kind, _cut(thing.name), thing.state, age, _owner(each), owner_id, thing.id[:12]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _print_not_listed(seen: Survey) -> None:
    for line in seen.not_listed:
        typer.echo(line, err=True)


def _owner(each: Found) -> str:
    state = "on another host" if each.owner_state.value == "elsewhere" else each.owner_state.value
    return f"{each.thing.owner.pid}@{each.thing.owner.host} ({state})"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"
