"""What is to be run in a Swarm, as data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, model_validator
from typing_extensions import Self

from openenv_trl.providers.spec import Bytes, ContainerSpec


class SwarmSpec(ContainerSpec, frozen=True):
    """Servers as services of a Docker Swarm.

    Example:
        >>> SwarmSpec(image="echo-env:latest", replicas=4, cpus=1, memory="512m")
    """

    type: Literal["swarm"] = "swarm"
    docker_host: str | None = None
    """The address of a manager's engine, such as ``tcp://manager:2376``; as the docker command finds it if None."""
    publish: Literal["host", "ingress", "network"] = "host"
    """How servers are reached. ``host``: each has a port of its own on the node that runs it, so sessions stay on their
    replica. ``ingress``: all replicas are behind one address, and Swarm's mesh picks one for each connection.
    ``network``: no port is published; servers are reached on ``overlay_network``, by an owner that is in it too."""
    published_port: int | None = Field(default=None, ge=1, le=65535)
    """The port on the nodes; one that is free, chosen by the engine, if None. With ``host`` one replica a node fits."""
    one_service: bool = False
    """Whether ``start`` makes one service of all replicas, as ``docker service create --replicas`` does. Swarm cannot
    be told which task of a service to end, so a pool wants a service for each replica: the default. Replicas that are
    behind one address (``ingress``) are one service always."""
    overlay_network: str | None = None
    """An overlay network to put the servers in. It is not made: ``docker network create -d overlay --attachable``."""
    node_addresses: dict[str, str] = Field(default_factory=dict[str, str])
    """Addresses of nodes by host name, where the owner cannot reach those that the nodes have told the Swarm."""
    constraints: list[str] = Field(default_factory=list[str])
    """Which nodes may run a server, such as ``node.role==worker``."""
    reserve_cpus: float | None = Field(default=None, gt=0)
    """CPU cores that a node must have free for a server."""
    reserve_memory: Bytes | None = None
    """Memory that a node must have free for a server."""
    restart: Literal["none", "on-failure"] = "none"
    """Whether Swarm starts a server again that has failed. By default it does not: a pool replaces what has died. With
    ``host`` and no ``published_port``, one that was started again has another address: see ``replicas``."""
    max_restarts: int = Field(default=3, ge=1)
    """With ``restart: on-failure``, how often."""
    restart_delay_s: float = Field(default=1.0, ge=0)
    """With ``restart: on-failure``, seconds before each."""
    update_order: Literal["start-first", "stop-first"] = "start-first"
    """In a rolling restart, whether the new server must be ready before the old one ends."""
    update_parallelism: int = Field(default=1, ge=1)
    """In a rolling restart, how many replicas are replaced at a time."""
    image_health_check: bool = False
    """Whether the image's HEALTHCHECK is run. Swarm then calls a server running only after its first success, which is
    an interval (30 s by default) after its start; the provider asks ``health_path`` in any case."""
    init: bool = True
    """Whether a small init (``docker-init`` of the nodes) is process 1. As process 1 a shell ignores SIGTERM, and a
    server does not bury its dead children."""
    registry_username: str | None = None
    """The user of a private registry. If None, what ``docker login`` has stored for the image's registry is used."""
    registry_password: SecretStr | None = None
    """The password, or token, of that user."""
    schedule_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds for which a replica may find no node, before that is an error."""
    pull_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds from a replica's node to its running: the pull of its image."""
    poll_s: float = Field(default=1.0, gt=0)
    """Seconds between two looks at all tasks. Events tell at once of a death on the engine's own node; they do not come
    from other nodes."""
    auto_init_swarm: bool = False
    """Whether an engine that is in no Swarm becomes one of a single node, which nobody else can join."""
    init_listen_addr: str = "127.0.0.1:2377"
    """With ``auto_init_swarm``, where the new Swarm's manager listens; its host is also the node's address."""
    init_data_port: int = Field(default=4789, ge=1024, le=49151)
    """With ``auto_init_swarm``, the UDP port of the new Swarm's overlay networks."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.publish == "network" and self.overlay_network is None:
            raise ValueError("publish is 'network', so overlay_network has to say which")
        if self.network == "internal" and self.publish != "network":
            raise ValueError(
                "network is 'internal', and Swarm publishes no port of an internal network; set publish to 'network' "
                "and overlay_network to one that was made with --internal"
            )
        if self.published_port is not None and self.publish == "network":
            raise ValueError("publish is 'network', so no port is published; leave published_port out")
        if self.one_service and self.publish != "ingress" and self.restart == "on-failure":
            raise ValueError(
                "with one_service Swarm would start again what the provider has removed; set restart to 'none', or "
                "leave one_service out"
            )
        if (self.registry_username is None) != (self.registry_password is None):
            raise ValueError("registry_username and registry_password go together")
        return self

    @property
    def shares_service(self) -> bool:
        """Whether the replicas that ``start`` brings up are one service."""
        return self.one_service or self.publish == "ingress"
