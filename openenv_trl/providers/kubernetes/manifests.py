"""The objects of a server on Kubernetes, as data: the pod's template, and what is made round it.

One function makes the pod's template, for the provider's Jobs and for the Deployment that
``openenv-trl serve --kubernetes --dry-run`` prints. No client is needed here, and nothing is asked of a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from openenv_trl.providers.kubernetes.names import dns_label, label_value
from openenv_trl.providers.kubernetes.spec import KubernetesSpec

CONTAINER = "server"
"""What the container is called in its pod."""
PORT_NAME = "http"
REPLICA_LABEL = "openenv-trl.replica"
"""The label that one replica's objects share, with the name of its Job."""
GROUP_LABEL = "openenv-trl.group"
"""The label that all objects of one provider share."""
NAME_ANNOTATION = "openenv-trl.name"
"""The replica's name as logs have it, whatever the label could take of it."""

_LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_STARTUP_MARGIN_S = 15
"""A node kills what does not become ready later than the owner gives it up, who has the better message."""

Manifest = dict[str, Any]


def pod_template(
    spec: KubernetesSpec, *, labels: Mapping[str, str], variables: Mapping[str, str], restart: bool, grace_s: float
) -> Manifest:
    """The template of a server's pod.

    Args:
        spec: What to run.
        labels: The pod's labels.
        variables: The container's environment variables.
        restart: Whether a server that ends is started again, in the same pod.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """
    pod: Manifest = {
        "restartPolicy": "Always" if restart else "Never",
        "terminationGracePeriodSeconds": max(1, math.ceil(grace_s)),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(spec),
        "tolerations": _tolerations(spec),
        "containers": [_container(spec, variables)],
    }
    if spec.read_only:
        pod["volumes"] = [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": str(spec.tmpfs)}}]
    optional = {
        "serviceAccountName": spec.service_account,
        "priorityClassName": spec.priority_class,
        "runtimeClassName": spec.runtime_class,
        "nodeSelector": dict(spec.node_selector),
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
    }
    pod |= {key: value for key, value in optional.items() if value}
    metadata: Manifest = {"labels": dict(labels)}
    if spec.annotations:
        metadata["annotations"] = dict(spec.annotations)
    return {"metadata": metadata, "spec": _merged(pod, spec.pod_overrides)}


def job(
    spec: KubernetesSpec,
    *,
    object_name: str,
    name: str,
    labels: Mapping[str, str],
    variables: Mapping[str, str],
    owners: list[Manifest],
    deadline_s: int | None,
) -> Manifest:
    """One replica: a Job of one pod that is never started again, and removed some seconds after it has ended.

    Args:
        spec: What to run.
        object_name: The Job's name.
        name: The replica's name.
        labels: Labels of the Job and its pod.
        variables: The container's environment variables.
        owners: References to what the Job is to go with.
        deadline_s: Seconds after which the cluster ends it, running or not.
    """
    template = pod_template(spec, labels=labels, variables=variables, restart=False, grace_s=spec.stop_grace_s)
    template["metadata"].setdefault("annotations", {})[NAME_ANNOTATION] = name
    body: Manifest = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": spec.ttl_after_finished_s,
        "template": template,
    }
    if deadline_s is not None:
        body["activeDeadlineSeconds"] = deadline_s
    metadata: Manifest = {"name": object_name, "labels": dict(labels), "annotations": {NAME_ANNOTATION: name}}
    if owners:
        metadata["ownerReferences"] = owners
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def service(
    object_name: str, selector: Mapping[str, str], labels: Mapping[str, str], port: int, owners: list[Manifest]
) -> Manifest:
    """A headless Service: the DNS name of one replica, known as soon as its pod has an address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(object_name, labels, owners),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(selector),
            "ports": [_service_port(port)],
        },
    }


def network_policy(
    object_name: str, selector: Mapping[str, str], labels: Mapping[str, str], port: int, owners: list[Manifest]
) -> Manifest:
    """What keeps a server from reaching anything, name servers too, while its port can be reached."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(object_name, labels, owners),
        "spec": {
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": port}]}],
            "egress": [],
        },
    }


def owner_reference(owner: Manifest) -> Manifest:
    """The reference that makes an object go when its owner has gone."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def deployment(spec: KubernetesSpec, *, drain_s: float = 30.0) -> list[Manifest]:
    """A long-lived server for ``kubectl apply``: a Deployment and its Service, and a NetworkPolicy where one is wanted.

    It has no lease, since nobody owns it but who applied it, and a server that ends is started again.

    Args:
        spec: What to run.
        drain_s: Seconds that episodes get to end in when a pod is replaced.
    """
    name = dns_label(spec.name or spec.image.rpartition("/")[2].partition("@")[0].partition(":")[0])
    selector = {"app.kubernetes.io/name": name}
    labels = {**spec.labels, **selector, "app.kubernetes.io/managed-by": "openenv-trl"}
    variables = {"OPENENV_TRL_DRAIN_TIMEOUT_S": f"{drain_s:g}", **spec.env_vars}
    template = pod_template(spec, labels=labels, variables=variables, restart=True, grace_s=drain_s + spec.stop_grace_s)
    namespace = {"namespace": spec.namespace} if spec.namespace else {}
    body: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, **namespace, "labels": labels},
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": template,
        },
    }
    front: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, **namespace, "labels": labels},
        "spec": {"selector": selector, "ports": [_service_port(spec.port)]},
    }
    if spec.network != "internal":
        return [body, front]
    policy = network_policy(name, selector, labels, spec.port, [])
    policy["metadata"] |= namespace
    return [body, front, policy]


def _container(spec: KubernetesSpec, variables: Mapping[str, str]) -> Manifest:
    container: Manifest = {
        "name": CONTAINER,
        "image": spec.image,
        "ports": [{"name": PORT_NAME, "containerPort": spec.port, "protocol": "TCP"}],
        "env": [{"name": key, "value": _literal(value)} for key, value in variables.items()],
        "resources": _resources(spec),
        "securityContext": _container_security(spec),
        "startupProbe": {
            **_probe(spec, spec.startup_period_s),
            "failureThreshold": math.ceil((spec.ready_timeout_s + _STARTUP_MARGIN_S) / spec.startup_period_s),
        },
        "readinessProbe": {**_probe(spec, spec.readiness_period_s), "failureThreshold": 3},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.liveness_period_s is not None:
        container["livenessProbe"] = {
            **_probe(spec, spec.liveness_period_s),
            "failureThreshold": spec.liveness_failures,
        }
    if spec.command is not None:
        # Kubernetes calls an image's command "args", and its entry point "command".
        container["args"] = [_literal(word) for word in spec.command]
    if spec.image_pull_policy is not None:
        container["imagePullPolicy"] = spec.image_pull_policy
    if spec.env_from_secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in spec.env_from_secrets]
    if spec.read_only:
        container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    return container


def _literal(text: str) -> str:
    """A text as the container is to have it: Kubernetes puts variables in place of ``$(NAME)``."""
    return text.replace("$(", "$$(")


def _probe(spec: KubernetesSpec, period_s: int) -> Manifest:
    return {
        "httpGet": {"path": spec.health_path, "port": PORT_NAME},
        "periodSeconds": period_s,
        "timeoutSeconds": spec.probe_timeout_s,
    }


def _resources(spec: KubernetesSpec) -> Manifest:
    limits = {"cpu": spec.cpus, "memory": spec.memory, "ephemeral-storage": spec.ephemeral_storage}
    requests = {"cpu": spec.cpu_request, "memory": spec.memory_request}
    resources = {
        "limits": {key: _quantity(key, value) for key, value in limits.items() if value is not None},
        "requests": {key: _quantity(key, value) for key, value in requests.items() if value is not None},
    }
    return {key: value for key, value in resources.items() if value}


def _quantity(resource: str, value: float) -> str:
    return f"{math.ceil(value * 1000)}m" if resource == "cpu" else str(int(value))


def _pod_security(spec: KubernetesSpec) -> Manifest:
    user, group = spec.user_and_group
    security: Manifest = {"runAsNonRoot": user != 0, "seccompProfile": {"type": "RuntimeDefault"}}
    if user is not None:
        security["runAsUser"] = user
    if group is not None:
        security["runAsGroup"] = group
    return security


def _container_security(spec: KubernetesSpec) -> Manifest:
    security: Manifest = {"readOnlyRootFilesystem": bool(spec.read_only)}
    if spec.drop_capabilities:
        security |= {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return security


def _tolerations(spec: KubernetesSpec) -> list[Manifest]:
    own = [each.model_dump(by_alias=True, exclude_none=True) for each in spec.tolerations]
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": spec.node_lost_after_s}
        for key in _LOST_NODE
        if not any(each.key == key for each in spec.tolerations)
    ]
    return own + lost


def _service_port(port: int) -> Manifest:
    return {"name": PORT_NAME, "port": port, "targetPort": PORT_NAME, "protocol": "TCP"}


def _metadata(object_name: str, labels: Mapping[str, str], owners: list[Manifest]) -> Manifest:
    metadata: Manifest = {"name": object_name, "labels": dict(labels)}
    if owners:
        metadata["ownerReferences"] = owners
    return metadata


def _merged(under: Manifest, over: Mapping[str, Any]) -> Manifest:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, Mapping)
        merged[key] = _merged(cast("Manifest", below), cast("Manifest", value)) if both else value
    return merged


def replica_labels(spec: KubernetesSpec, owner_labels: Mapping[str, str], object_name: str, group: str) -> Manifest:
    """The labels of one replica's objects: the user's, those that say whose it is, and those to select it by."""
    return {
        **spec.labels,
        **{key: label_value(value) for key, value in owner_labels.items()},
        "app.kubernetes.io/name": dns_label(spec.name or spec.type),
        "app.kubernetes.io/managed-by": "openenv-trl",
        GROUP_LABEL: group,
        REPLICA_LABEL: object_name,
    }
