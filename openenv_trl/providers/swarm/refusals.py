"""Why a replica did not come to run in a Swarm, and what to change, in words."""

from __future__ import annotations

from openenv_trl.providers.swarm.spec import SwarmSpec
from openenv_trl.providers.swarm.tasks import Task


def mebibytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1024**2:g} MiB"


def no_node(name: str, spec: SwarmSpec, task: Task | None) -> str:
    """Why no node was found for a replica within the time for it.

    Args:
        name: The replica.
        spec: What is run.
        task: Its task, where Swarm has made one.
    """
    why = task.error if task is not None and task.error else "Swarm has not said why"
    return f"{name} found no node within {spec.schedule_timeout_s:g} s: {why}. {_change(spec, why)}"


def _change(spec: SwarmSpec, why: str) -> str:
    if "insufficient resources" in why:
        wanted = " and ".join(
            ([f"reserve_cpus={spec.reserve_cpus:g}"] if spec.reserve_cpus is not None else [])
            + ([f"reserve_memory={mebibytes(spec.reserve_memory)}"] if spec.reserve_memory is not None else [])
        )
        return f"Each replica needs {wanted} free on its node: lower that, start fewer replicas, or add a node."
    if "constraints" in why:
        return (
            f"No node that is up meets constraints={spec.constraints}: `docker node ls` and `docker node inspect` tell "
            "their names, roles and labels."
        )
    if "port already in use" in why:
        return (
            f"With publish='host', published_port={spec.published_port} fits one replica a node: leave published_port "
            "out, and the engine chooses a free port for each."
        )
    return "`docker node ls` tells which nodes are up; raise schedule_timeout_s where one is to come."


def slow_pull(name: str, spec: SwarmSpec, task: Task) -> str:
    """Says that a replica's node has not brought it to run in time.

    Args:
        name: The replica.
        spec: What is run.
        task: Its task.
    """
    health = "; its image's HEALTHCHECK has not passed" if spec.image_health_check and task.state == "starting" else ""
    return (
        f"{name} did not run {spec.pull_timeout_s:g} s after it had a node: it is {task.state}{health}. Raise "
        f"pull_timeout_s where {spec.image!r} takes longer to pull."
    )


def not_started(name: str, spec: SwarmSpec, task: Task, node: str, reason: str, wrote: bool) -> str:
    """Why a task has ended before its replica was ready.

    Args:
        name: The replica.
        spec: What is run.
        task: Its task.
        node: The node's name.
        reason: Why, where more is known than the exit code.
        wrote: Whether its last lines follow.
    """
    if "No such image" in task.error:
        return (
            f"{name} was not started: the node {node} has no image {spec.image!r}, and could not pull it. Build it on "
            "that node, from the environment's checkout "
            f"(`docker build -f FOLDER/server/Dockerfile -t {spec.image} .`), or push it to a registry that all nodes "
            f"reach (`docker push {spec.image}`); for a private one, `docker login` or set registry_username and "
            "registry_password."
        )
    if "vxlan interface: file exists" in task.error:
        return (
            f"{name} was not started on the node {node}: {task.error}. Another VXLAN interface there has this "
            "network's number and port (`ip -d link show type vxlan`): one left behind, or that of another Swarm "
            "on the same machine. Give each Swarm on a machine a port of its own: init_data_port here, "
            "`docker swarm init --data-path-port` by hand."
        )
    if task.state == "rejected" or "starting container failed" in task.error:
        return f"{name} was not started on the node {node}: {task.error}"
    how = reason or f"exit code {task.exit_code}"
    return f"{name} ended before it was ready: {how}.{' It wrote:' if wrote else ' It wrote nothing.'}"
