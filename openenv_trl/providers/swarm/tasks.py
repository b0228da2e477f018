"""What a Swarm says of its tasks, and what that means for the replica that a task is.

A task is one run of one container; a slot of a service holds one after the other. No clock, no socket: documents of
the engine's API in, verdicts out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_ENDED = ("complete", "shutdown", "failed", "rejected", "remove", "orphaned")
_UNWANTED = ("shutdown", "remove")
_LOOKS_FOR_NODE = ("new", "pending")


@dataclass(frozen=True)
class Task:
    """One task, as far as it matters here."""

    id: str
    service_id: str
    slot: int
    node_id: str
    state: str
    desired: str
    error: str
    exit_code: int | None
    container_id: str
    created: tuple[str, float]
    ports: Mapping[int, int]
    """Published ports by the port inside the container, where the task has ports of its own."""
    addresses: Mapping[str, str]
    """Its addresses by the network's name."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Task:
        """Reads what ``GET /tasks`` says of one."""
        status: dict[str, Any] = document.get("Status") or {}
        container: dict[str, Any] = status.get("ContainerStatus") or {}
        ports: dict[str, list[dict[str, int]]] = status.get("PortStatus") or {}
        # The fraction is cut after its last digit that is not 0.
        seconds, _, fraction = str(document.get("CreatedAt", "")).rstrip("Z").partition(".")
        return cls(
            id=document["ID"],
            service_id=document.get("ServiceID", ""),
            slot=document.get("Slot", 0),
            node_id=document.get("NodeID", ""),
            state=status.get("State", "new"),
            desired=document.get("DesiredState", "running"),
            error=status.get("Err", ""),
            exit_code=container.get("ExitCode") if container.get("ContainerID") else None,
            container_id=container.get("ContainerID", ""),
            created=(seconds, float(f"0.{fraction or 0}")),
            # IPv4 comes first, and IPv6 may have another port.
            ports={port["TargetPort"]: port["PublishedPort"] for port in reversed(ports.get("Ports") or [])},
            addresses={
                each["Network"]["Spec"]["Name"]: each["Addresses"][0].partition("/")[0]
                for each in document.get("NetworksAttachments") or ()
                if each.get("Addresses")
            },
        )

    @property
    def ended(self) -> bool:
        """Whether it has ended, or Swarm wants it ended: also on a node that does not answer any more."""
        return self.state in _ENDED or self.desired in _UNWANTED

    @property
    def gone(self) -> bool:
        """Whether its container does not run."""
        return self.state in _ENDED

    @property
    def runs(self) -> bool:
        """Whether its server was started and is to go on."""
        return self.state == "running" and not self.ended

    @property
    def homeless(self) -> bool:
        """Whether no node has been found for it."""
        return self.state in _LOOKS_FOR_NODE and not self.ended


@dataclass(frozen=True)
class Verdict:
    """What has become of a slot's task."""

    ended: Task | None = None
    """The task that has ended, where it has."""
    successor: Task | None = None
    """The task that has taken the slot since; None where there is none, and will be none."""


def newest(tasks: Iterable[Task], slot: int) -> Task | None:
    """The youngest task of a slot."""
    return max((task for task in tasks if task.slot == slot), key=lambda task: task.created, default=None)


def judge(known: Task, tasks: Iterable[Task], restarts: bool) -> Verdict:
    """Says whether a task has ended, and whether Swarm has put another in its place.

    Args:
        known: The task as it was last seen.
        tasks: All tasks of its service now.
        restarts: Whether Swarm starts failed ones again.
    """
    own = [task for task in tasks if task.slot == known.slot]
    last = next((task for task in own if task.id == known.id), None)
    if last is not None and not last.ended:
        return Verdict()  # also while an update tries another one beside it
    successor = newest([task for task in own if not task.ended and task.id != known.id], known.slot)
    if successor is None and last is not None and restarts and last.desired not in _UNWANTED:
        return Verdict()  # Swarm has not yet decided whether to start it again
    return Verdict(ended=last or known, successor=successor)


def why_ended(task: Task, *, service_there: bool, node_state: str) -> str:
    """Why a running task has ended, where more is known than its exit code.

    Args:
        task: The task, as last seen.
        service_there: Whether the Swarm still has its service.
        node_state: ``down``, ``drain`` or another state of its node.
    """
    if not service_there:
        return "its service was removed from the Swarm"
    if task.error.startswith("No such container"):
        return "its container is gone: its engine was restarted, or somebody removed it"
    if task.state == "failed" and task.error and not task.error.startswith("task: non-zero exit"):
        return task.error
    if not task.gone:
        if node_state in ("down", "drain"):
            return f"its node is {'down' if node_state == 'down' else 'drained'}"
        return "Swarm has ended it: its service was changed, or its node does not answer"
    return ""
