"""What a pod's status says, in words: whether its server runs, what keeps it from starting, why it has ended.

Pure: a pod goes in as the API gives it, a `PodState` comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

from openenv_trl.providers.kubernetes.manifests import CONTAINER, Manifest

_HOPELESS = {
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
}
"""Reasons of a waiting container that time does not change, or not before a person has changed something."""
_NO_SUCH_IMAGE = ("not found", "manifest unknown", "denied", "unauthorized", "no such image", "does not exist")
_DISRUPTIONS = {
    "PreemptionByScheduler": "it was put off its node for a pod of a higher priority",
    "DeletionByTaintManager": "its node does not answer, or was tainted",
    "EvictionByEvictionAPI": "it was evicted, as when a node is drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ended it, as when memory or disk run short, or the node shuts down",
}


@dataclass(frozen=True)
class Ended:
    """How a pod's server ended."""

    exit_code: int | None
    reason: str
    """More than the exit code, where more is known; else empty."""
    last_words: str = ""
    """The end of its log, where the node has put it into the pod's status."""


@dataclass(frozen=True)
class PodState:
    """What is known of one pod."""

    name: str
    uid: str
    ip: str
    running: bool
    """Whether its container runs."""
    ready: bool
    """Whether its node's readiness checks are answered."""
    problem: str
    """Why it does not run yet; empty where nothing is wrong."""
    hopeless: bool
    """Whether waiting does not help against the problem."""
    ended: Ended | None
    """How it ended, if it has."""


def _part(given: Manifest, key: str) -> Manifest:
    """A part of an object; empty where it has none."""
    return given.get(key) or {}


def _parts(given: Manifest, key: str) -> list[Manifest]:
    return given.get(key) or []


def read_pod(pod: Manifest) -> PodState:
    """Read a pod."""
    metadata, status = _part(pod, "metadata"), _part(pod, "status")
    conditions: dict[str, Manifest] = {each["type"]: each for each in _parts(status, "conditions")}
    state = _state_of_server(status)
    problem, hopeless = _problem(status, conditions, state)
    return PodState(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        ip=status.get("podIP") or "",
        running="running" in state,
        ready=_part(conditions, "Ready").get("status") == "True",
        problem=problem,
        hopeless=hopeless,
        ended=_ended(pod, status, conditions, state),
    )


def is_over(pod: Manifest) -> bool:
    """Whether a pod is being deleted, and nothing runs in it any more."""
    status = _part(pod, "status")
    statuses = [*_parts(status, "initContainerStatuses"), *_parts(status, "containerStatuses")]
    still = any("running" in _part(each, "state") for each in statuses)
    return pod["metadata"].get("deletionTimestamp") is not None and bool(statuses) and not still


def _state_of_server(status: Manifest) -> Manifest:
    for each in _parts(status, "containerStatuses"):
        if each.get("name") == CONTAINER:
            return _part(each, "state")
    return {}


def _problem(status: Manifest, conditions: dict[str, Manifest], state: Manifest) -> tuple[str, bool]:
    waiting = _part(state, "waiting")
    reason, message = waiting.get("reason") or "", waiting.get("message") or ""
    if reason in ("ErrImagePull", *_HOPELESS):
        certain = reason in _HOPELESS or any(words in message.lower() for words in _NO_SUCH_IMAGE)
        return f"{reason}: {message}".rstrip(": "), certain
    scheduled = _part(conditions, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}".rstrip(": "), False
    if reason and reason != "ContainerCreating":
        return f"{reason}: {message}".rstrip(": "), False
    if status.get("phase", "Pending") == "Pending":
        return "its container is being created" if scheduled.get("status") == "True" else "it has no node yet", False
    return "", False


def _ended(pod: Manifest, status: Manifest, conditions: dict[str, Manifest], state: Manifest) -> Ended | None:
    terminated = state.get("terminated")
    phase = status.get("phase")
    leaving = pod["metadata"].get("deletionTimestamp") is not None
    if terminated is None and phase not in ("Failed", "Succeeded") and not leaving:
        return None
    exit_code = None if terminated is None else terminated.get("exitCode")
    message = "" if terminated is None else terminated.get("message") or ""
    cause = _disruption(status, conditions)
    if terminated is not None and terminated.get("reason") == "OOMKilled":
        return Ended(exit_code, f"out of memory{_limit_of(pod)}", message)
    if cause:
        return Ended(exit_code, cause, message)
    if terminated is None:
        return Ended(None, "its pod is being deleted" if leaving else f"its pod has the phase {phase}")
    if leaving:
        return Ended(exit_code, f"its pod was deleted (exit code {exit_code})", message)
    if terminated.get("reason") in (None, "Error", "Completed"):
        return Ended(exit_code, "", message)
    words = " ".join(filter(None, [terminated["reason"], message]))
    return Ended(exit_code, f"exit code {exit_code}: {words}")


def _disruption(status: Manifest, conditions: dict[str, Manifest]) -> str:
    """Why the cluster ended the pod: evicted, node lost, deadline."""
    disruption = _part(conditions, "DisruptionTarget")
    reason, message = status.get("reason") or "", status.get("message") or ""
    if reason == "DeadlineExceeded":
        return "it reached its max_lifetime_s (DeadlineExceeded)"
    if disruption.get("status") == "True":
        told = _DISRUPTIONS.get(disruption.get("reason", ""), "the cluster ended it")
        return f"{told} ({disruption.get('reason')}: {message or disruption.get('message', '')})".replace(": )", ")")
    if reason == "NodeLost":
        return f"its node does not answer (NodeLost: {message})".replace(": )", ")")
    if reason:
        told = "it was evicted" if reason == "Evicted" else "the cluster ended it"
        return f"{told} ({reason}: {message})".replace(": )", ")")
    return ""


def _limit_of(pod: Manifest) -> str:
    for container in _parts(_part(pod, "spec"), "containers"):
        limit = _part(_part(container, "resources"), "limits").get("memory")
        if container.get("name") == CONTAINER and limit:
            size = f"{int(limit) / 1024**2:g} MiB" if str(limit).isdigit() else limit
            return f": it needed more than its limit of {size}; raise memory"
    return ": its node had no more; set memory, or memory_request"
