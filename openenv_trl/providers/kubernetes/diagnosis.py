"""Finds out why a replica does not start, or why it has ended: from its log, and what the cluster warns of."""

from __future__ import annotations

from openenv_trl.errors import ProviderError, ServerStartError
from openenv_trl.providers.kubernetes.api import EVENTS, ClusterApi, Object
from openenv_trl.providers.kubernetes.manifests import CONTAINER
from openenv_trl.providers.kubernetes.pod_state import Ended, PodState

_TAIL = 60


class Diagnosis:
    """Asks a cluster about what went wrong.

    Args:
        api: The cluster.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    async def ended_early(self, name: str, state: PodState, ended: Ended) -> ServerStartError:
        """The error for a server that ended before it had an address."""
        tail = await self.tail(state, ended)
        why = ended.reason or f"exit code {ended.exit_code}"
        wrote = " It wrote:" if tail.strip() else " It wrote nothing."
        return ServerStartError(f"{name} ended before it was ready: {why}.{wrote}", log_tail=tail)

    async def no_pod(self, name: str, job: str) -> str:
        """What keeps the cluster from making a Job's pod; empty where it says nothing.

        Raises:
            ServerStartError: It never will: a quota, or a policy of the namespace.
        """
        told = await self.warnings("Job", job)
        if "forbidden" in told:
            raise ServerStartError(
                f"{name} cannot start: the cluster refuses to make its pod: {told}. Ask for fewer replicas, less cpus "
                "or memory, or have the namespace's quota or policy changed."
            )
        return told

    async def tail(self, state: PodState, ended: Ended) -> str:
        """The last lines of a server that has ended, as far as they are still to be had."""
        try:
            return (await self._api.log(state.name, CONTAINER, _TAIL)).rstrip("\n") or ended.last_words
        except ProviderError:
            return ended.last_words  # its node does not answer, or the pod is gone already

    async def killed_by_node(self, state: PodState, exit_code: int | None) -> str:
        """Why its node has ended a server, whatever the server made of it; empty where the node did not."""
        events = await self._events("Pod", state.name)
        # Early checks of a server that is not up yet fail too: only with a kill they mean something.
        if not any(each.get("reason") == "Killing" for each in events):
            return ""
        for probe in ("Liveness", "Startup"):
            failed = [each for each in events if each.get("message", "").startswith(f"{probe} probe failed")]
            if failed:
                return f"its node has killed it (exit code {exit_code}): {failed[-1]['message']}"
        return ""

    async def warnings(self, kind: str, name: str) -> str:
        """What the cluster warns of an object; empty where it may not be asked."""
        return _told([each for each in await self._events(kind, name) if each.get("type") == "Warning"])

    async def _events(self, kind: str, name: str) -> list[Object]:
        if not name:
            return []
        try:
            listed = await self._api.list(EVENTS, fields=f"involvedObject.kind={kind},involvedObject.name={name}")
        except ProviderError:
            return []
        return sorted(listed["items"], key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "")


def _told(events: list[Object]) -> str:
    told = dict.fromkeys(f"{each.get('reason')}: {each.get('message', '').strip()}" for each in events)
    return "; ".join(list(told)[-3:])


def cannot_start(name: str, state: PodState) -> ServerStartError:
    """The error for what keeps a container from starting, with what to change."""
    reason = state.problem.partition(":")[0]
    if reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"):
        advice = (
            "Check the image's name, push the image to a registry that the cluster's nodes reach, and name the "
            "registry's credentials in image_pull_secrets where it is private."
        )
    elif "non-root" in state.problem or "runAsNonRoot" in state.problem:
        advice = "Set user to a number other than 0, or to '0' where the server has to be root."
    else:
        advice = "Look at env_from_secrets, command and pod_overrides."
    return ServerStartError(f"{name} cannot start: {state.problem}. {advice}")
