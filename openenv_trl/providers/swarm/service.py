"""The service of a spec, as the engine's API takes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from openenv_trl.providers.swarm.spec import SwarmSpec

_SECOND = 1_000_000_000
# A server that writes a line for each request fills a disk in a training run; the last ones can still be read.
_LOGS = {"Name": "json-file", "Options": {"max-size": "10m", "max-file": "1"}}
_LONGEST_NAME = 63
STACK_LABEL = "com.docker.stack.namespace"
"""Services with the same value are one stack to ``docker stack ps`` and ``docker stack rm``."""


def service_name(replica_name: str, suffix: str) -> str:
    """A name that Swarm takes and that no other provider uses.

    Args:
        replica_name: What the replica is called.
        suffix: What makes it unlike other providers' names.
    """
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "-", replica_name).strip("-_")
    return f"{plain[: _LONGEST_NAME - len(suffix) - 1]}-{suffix}".lstrip("-")


def service_definition(
    spec: SwarmSpec,
    *,
    name: str,
    labels: dict[str, str],
    stack: str,
    variables: dict[str, str],
    volumes: Sequence[str] = (),
    tasks: int = 1,
) -> dict[str, Any]:
    """What ``POST /services/create`` is to be sent, as keywords of aiodocker's ``services.create``.

    Args:
        spec: What to run.
        name: The service's name.
        labels: Labels that say whose it is, for the service and its containers.
        stack: What the provider's services are called together.
        variables: Environment variables beside the spec's.
        volumes: The folders for which the image declares volumes, where that is known.
        tasks: Replicas in this service.
    """
    owned = {**spec.labels, **labels}
    template: dict[str, Any] = {
        "ContainerSpec": _container(spec, owned, {**spec.env_vars, **variables}, volumes),
        "Resources": _resources(spec),
        "RestartPolicy": _restart_policy(spec),
        "Placement": {"Constraints": spec.constraints},
        "LogDriver": _LOGS,
    }
    if spec.overlay_network is not None:
        template["Networks"] = [{"Target": spec.overlay_network}]
    update = {
        "Parallelism": spec.update_parallelism,
        "Order": spec.update_order,
        "FailureAction": "rollback",
        "Monitor": _SECOND,
    }
    return {
        "task_template": template,
        "name": name,
        "labels": {**owned, STACK_LABEL: stack},
        "mode": {"Replicated": {"Replicas": tasks}},
        "update_config": update,
        # Going back is for running servers that a bad update has left; one at a time would double the outage.
        "rollback_config": {"Parallelism": 0, "Order": spec.update_order, "FailureAction": "pause"},
        "endpoint_spec": _endpoint(spec),
    }


def _container(
    spec: SwarmSpec, labels: dict[str, str], variables: dict[str, str], volumes: Sequence[str]
) -> dict[str, Any]:
    # The volumes would be there without being named, and go with their container; named, they carry the owner's labels.
    options = {"Labels": labels}
    mounts: list[dict[str, Any]] = [{"Type": "volume", "Target": path, "VolumeOptions": options} for path in volumes]
    container: dict[str, Any] = {
        "Image": spec.image,
        "Env": variables,
        "Labels": labels,
        "StopGracePeriod": int(spec.stop_grace_s * _SECOND),
    }
    if spec.command is not None:
        container["Command"] = spec.command
    if spec.user is not None:
        container["User"] = spec.user
    if spec.read_only:
        container["ReadOnly"] = True
        mounts.append({"Type": "tmpfs", "Target": "/tmp", "TmpfsOptions": {"SizeBytes": spec.tmpfs, "Mode": 0o1777}})
    if mounts:
        container["Mounts"] = mounts
    if spec.drop_capabilities:
        container["CapabilityDrop"] = ["ALL"]
        # Engines before 26 have no such setting for services, and ignore it.
        container["Privileges"] = {"NoNewPrivileges": True}
    if not spec.image_health_check:
        container["Healthcheck"] = {"Test": ["NONE"]}
    if spec.init:
        container["Init"] = True
    return container


def _resources(spec: SwarmSpec) -> dict[str, Any]:
    limits: dict[str, int] = {}
    if spec.cpus is not None:
        limits["NanoCPUs"] = int(spec.cpus * _SECOND)
    if spec.memory is not None:
        limits["MemoryBytes"] = spec.memory
    if spec.pids is not None:
        limits["Pids"] = spec.pids
    reservations: dict[str, int] = {}
    if spec.reserve_cpus is not None:
        reservations["NanoCPUs"] = int(spec.reserve_cpus * _SECOND)
    if spec.reserve_memory is not None:
        reservations["MemoryBytes"] = spec.reserve_memory
    return {"Limits": limits, "Reservations": reservations}


def _restart_policy(spec: SwarmSpec) -> dict[str, Any]:
    if spec.restart == "none":
        return {"Condition": "none"}
    return {
        "Condition": "on-failure",
        "MaxAttempts": spec.max_restarts,
        "Delay": int(spec.restart_delay_s * _SECOND),
    }


def _endpoint(spec: SwarmSpec) -> dict[str, Any]:
    if spec.publish == "network":
        return {"Mode": "dnsrr"}
    port: dict[str, Any] = {"Protocol": "tcp", "TargetPort": spec.port, "PublishMode": spec.publish}
    if spec.published_port is not None:
        port["PublishedPort"] = spec.published_port
    # Only the mesh needs an address of the service's own.
    return {"Mode": "vip" if spec.publish == "ingress" else "dnsrr", "Ports": [port]}
