"""What the control plane does by itself: pods for Jobs, their end, the removal of what has ended or lost its owner.

Each is a step from the store's present state to a better one, made whenever the store has changed and twice a second.
"""

from __future__ import annotations

import copy
from datetime import datetime, timezone

from tests.providers.kubernetes.cluster.kubelet import NODE
from tests.providers.kubernetes.cluster.store import Object, Refused, Store, now

OWNED = ("pods", "services", "networkpolicies", "jobs")


class Controllers:
    """Job controller, TTL controller, garbage collector, scheduler, for a cluster of one node.

    Args:
        store: The objects.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.schedulable = True
        self.pod_quota: int | None = None

    def step(self) -> None:
        for job in self._store.all("jobs"):
            self._job(job)
        self._collect()
        self._schedule()

    def _job(self, job: Object) -> None:
        metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
        namespace, name = metadata["namespace"], metadata["name"]
        finished = next(
            (each for each in status.get("conditions") or [] if each["type"] in ("Complete", "Failed")), None
        )
        if finished is not None:
            if _age_s(finished["lastTransitionTime"]) >= spec.get("ttlSecondsAfterFinished", float("inf")):
                self._store.delete("jobs", namespace, name)
            return
        pods = [each for each in self._store.all("pods", namespace) if _owned_by(each, metadata["uid"])]
        if not status.get("startTime"):
            self._set(job, {"startTime": now(), "active": 0})
            return
        deadline_s = spec.get("activeDeadlineSeconds")
        if deadline_s is not None and _age_s(status["startTime"]) >= deadline_s:
            for pod in pods:
                self._store.delete("pods", namespace, pod["metadata"]["name"])
            self._finish(job, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        elif not pods and status.get("active"):
            self._finish(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif not pods:
            self._make_pod(job)
        elif (phase := pods[0].get("status", {}).get("phase")) in ("Succeeded", "Failed"):
            kind = "Complete" if phase == "Succeeded" else "Failed"
            self._finish(job, kind, "" if phase == "Succeeded" else "BackoffLimitExceeded", "")

    def _make_pod(self, job: Object) -> None:
        metadata, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        namespace, name = metadata["namespace"], metadata["name"]
        if self.pod_quota is not None and len(self._store.all("pods", namespace)) >= self.pod_quota:
            told = (
                f'Error creating: pods "{name}-" is forbidden: exceeded quota: pods, requested: pods=1, used: '
                f"pods={self.pod_quota}, limited: pods={self.pod_quota}"
            )
            self.warn(namespace, "Job", name, "FailedCreate", told)
            return
        labels = {"job-name": name, "controller-uid": metadata["uid"], **(template["metadata"].get("labels") or {})}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metadata["uid"], "controller": True}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{name}-",
                "labels": labels,
                "annotations": template["metadata"].get("annotations") or {},
                "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        self._store.create("pods", namespace, pod)
        self._set(job, {"active": 1})

    def _finish(self, job: Object, kind: str, reason: str, message: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now()}
        self._set(job, {"active": 0, "conditions": [condition]})

    def _set(self, job: Object, status: Object) -> None:
        def edit(given: Object) -> None:
            given["status"] = {**(given.get("status") or {}), **status}

        self._store.change("jobs", job["metadata"]["namespace"], job["metadata"]["name"], edit)

    def _collect(self) -> None:
        """Deletes what had owners, none of which is there any more."""
        uids = {each["metadata"]["uid"] for plural in OWNED for each in self._store.all(plural)}
        for plural in OWNED:
            for each in self._store.all(plural):
                metadata = each["metadata"]
                owners = metadata.get("ownerReferences") or []
                if owners and not metadata.get("deletionTimestamp") and not any(o["uid"] in uids for o in owners):
                    self._store.delete(plural, metadata["namespace"], metadata["name"])

    def _schedule(self) -> None:
        for pod in self._store.all("pods"):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            wanted = pod["spec"].get("nodeSelector") or {}
            if self.schedulable and all(key == "kubernetes.io/hostname" for key in wanted):
                condition = {"type": "PodScheduled", "status": "True"}
            else:
                told = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": told}

            def edit(given: Object, condition: Object = condition) -> None:
                given["status"]["conditions"] = [condition]
                if condition["status"] == "True":
                    given["spec"]["nodeName"] = NODE

            self._store.change("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], edit)

    def warn(self, namespace: str, kind: str, name: str, reason: str, message: str) -> None:
        """Writes an event, once."""
        fields = f"involvedObject.kind={kind},involvedObject.name={name},reason={reason}"
        if not self._store.all("events", namespace, fields=fields):
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{name}."},
                "involvedObject": {"kind": kind, "name": name, "namespace": namespace},
                "type": "Normal" if reason == "Killing" else "Warning",
                "reason": reason,
                "message": message,
                "lastTimestamp": now(),
            }
            self._store.create("events", namespace, event)

    def evict(self, namespace: str, name: str, message: str) -> None:
        """Ends a pod as a node does that runs short of something."""

        def edit(pod: Object) -> None:
            pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}

        self._store.change("pods", namespace, name, edit)

    def lose_node(self, namespace: str) -> None:
        """Gives up the pods of a node that does not answer: they are marked, and nobody says that they are over."""
        for pod in self._store.all("pods", namespace):

            def edit(given: Object) -> None:
                given["status"]["conditions"].append(
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "DeletionByTaintManager",
                        "message": "Taint manager: deleting due to NoExecute taint",
                    }
                )

            try:
                self._store.change("pods", namespace, pod["metadata"]["name"], edit)
                self._store.delete("pods", namespace, pod["metadata"]["name"])
            except Refused:
                continue


def _owned_by(given: Object, uid: str) -> bool:
    return any(each["uid"] == uid for each in given["metadata"].get("ownerReferences") or [])


def _age_s(when: str) -> float:
    then = datetime.strptime(when, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return (datetime.now(timezone.utc) - then).total_seconds()
