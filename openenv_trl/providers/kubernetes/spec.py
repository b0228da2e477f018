"""What a server on a Kubernetes cluster is: the fields of every container, and those that only a cluster has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel
from typing_extensions import Self

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.kubernetes.names import check_labels
from openenv_trl.providers.settings import Settings
from openenv_trl.providers.spec import Bytes, ContainerSpec, Text

_USER = re.compile(r"(\d+)(?::(\d+))?")


class Toleration(Settings, frozen=True):
    """A taint of nodes that a pod puts up with. Kubernetes' own spelling (``tolerationSeconds``) is read too."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    key: str | None = None
    """The taint's key; every taint if None."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the value has to be equal, or the key to exist."""
    value: str | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; every effect if None."""
    toleration_seconds: int | None = None
    """For how long, with ``NoExecute``; for ever if None."""


class KubernetesSpec(ContainerSpec, frozen=True):
    """Servers that run as pods of a Kubernetes cluster.

    Labels of an image cannot be read before a node has pulled it, so what is None elsewhere is the safe choice here: a
    read-only root file system, and a user that is not root.
    """

    type: Literal["kubernetes"] = "kubernetes"

    # Which cluster.
    namespace: str | None = None
    """Where everything is made; the kubeconfig context's, or the owner's own pod's, if None."""
    kubeconfig: Path | None = None
    """The file with the cluster's address and credentials; ``$KUBECONFIG``, then ``~/.kube/config``, if None."""
    context: str | None = None
    """Which of the kubeconfig's contexts; its current one if None."""
    in_cluster: bool | None = None
    """Whether to use the credentials that Kubernetes gives to a pod; if None, where there is no kubeconfig."""
    access: Literal["auto", "pod-ip", "service", "port-forward"] = "auto"
    """How replicas are reached: at the pod's IP; at a DNS name of the cluster; through the API server, by a port of
    this machine. ``auto``: the pod's IP from inside the cluster, through the API server from outside."""

    # The pod.
    read_only: bool | None = True
    """Whether the root file system is read-only, with /tmp in memory. False for a server that writes elsewhere."""
    user: str | None = "1000:1000"
    """User and group to run as, in numbers; None for the image's own, which must then be a number and not root; ``0``
    for root."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When a node pulls the image; by Kubernetes' rule (always for ``latest``) if None."""
    image_pull_secrets: list[str] = Field(default_factory=list[str])
    """Secrets of the namespace with credentials of the image's registry."""
    env_from_secrets: list[str] = Field(default_factory=list[str])
    """Secrets of the namespace whose entries become environment variables. What is in ``env_vars`` can be read by
    everybody who may see pods."""
    cpu_request: float | None = Field(default=None, gt=0)
    """CPU cores that a node has to have free; as many as ``cpus`` if None."""
    memory_request: Bytes | None = None
    """Memory that a node has to have free; as much as ``memory`` if None."""
    ephemeral_storage: Bytes | None = None
    """Disk at most, for logs and what is written into the container; a pod that needs more is evicted."""
    node_selector: dict[str, Text] = Field(default_factory=dict[str, Text])
    """Labels that a node must have."""
    tolerations: list[Toleration] = Field(default_factory=list[Toleration])
    """Taints of nodes that the pods put up with."""
    node_lost_after_s: int = Field(default=30, ge=0)
    """Seconds after which the pods of a node that does not answer are given up. Kubernetes itself waits 300."""
    service_account: str | None = None
    """The pods' service account; its token is never mounted."""
    priority_class: str | None = None
    """The pods' priority class."""
    runtime_class: str | None = None
    """The runtime that isolates the container, such as ``gvisor``, where the cluster has it."""
    annotations: dict[str, Text] = Field(default_factory=dict[str, Text])
    """Annotations of the pods."""
    pod_overrides: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Fields of the pod's ``spec`` in Kubernetes' own form, laid over what is made of the others: affinity, volumes, a
    GPU. Mappings are merged, lists replaced."""

    # Health.
    startup_period_s: int = Field(default=1, ge=1)
    """Seconds between two health checks by the node until the first is answered."""
    readiness_period_s: int = Field(default=5, ge=1)
    """Seconds between two later checks of whether it takes connections."""
    liveness_period_s: int | None = Field(default=10, ge=1)
    """Seconds between two checks of whether it is to be killed; None to never kill one that does not answer."""
    liveness_failures: int = Field(default=6, ge=1)
    """Checks in a row that may fail before it is killed. A long step that holds Python's lock fails them too."""
    probe_timeout_s: int = Field(default=5, ge=1)
    """Seconds within which a health check has to be answered."""

    # Time.
    pending_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds within which a pod must have a node and its image: a cluster may have to add a node first."""
    ttl_after_finished_s: int = Field(default=15, ge=0)
    """Seconds after which the cluster removes a Job whose server has ended, with its pod and log."""
    max_lifetime_s: int | None = Field(default=None, ge=1)
    """Seconds after which the cluster ends a replica, whatever it does: for images whose server knows no lease."""

    @property
    def user_and_group(self) -> tuple[int | None, int | None]:
        """The numbers of `user`."""
        matched = _USER.fullmatch(self.user or "")
        return (None, None) if matched is None else (int(matched[1]), None if matched[2] is None else int(matched[2]))

    @field_validator("user")
    @classmethod
    def _numeric(cls, user: str | None) -> str | None:
        if user is not None and not _USER.fullmatch(user):
            raise ValueError(f"{user!r}: Kubernetes takes users and groups by number, such as '1000:1000'")
        return user

    @field_validator("pids")
    @classmethod
    def _no_pids(cls, pids: int | None) -> int | None:
        if pids is not None:
            raise ValueError(
                "Kubernetes has no limit of processes for a pod: it is set for whole nodes (podPidsLimit of the "
                "kubelet). Ask for it there, and leave pids out"
            )
        return pids

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.in_cluster and (self.kubeconfig is not None or self.context is not None):
            raise ValueError("in_cluster: credentials come from the pod or from a kubeconfig, not both; leave one out")
        for what, request, limit in (
            ("cpu_request", self.cpu_request, self.cpus),
            ("memory_request", self.memory_request, self.memory),
        ):
            if request is not None and limit is not None and request > limit:
                raise ValueError(f"{what}={request:g} is more than the limit of {limit:g}; ask for less")
        try:
            check_labels(self.labels)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self
