"""What the API server refuses, and what lies between it and us, in words that say what to change."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openenv_trl.errors import ProviderError

if TYPE_CHECKING:
    from openenv_trl.providers.kubernetes.api import Resource

_PASSING = (429, 500, 502, 503, 504)
RULES = """\
  - {apiGroups: [batch], resources: [jobs], verbs: [create, get, list, patch, delete]}
  - {apiGroups: [""], resources: [pods], verbs: [get, list, watch, delete]}
  - {apiGroups: [""], resources: [pods/log], verbs: [get]}
  - {apiGroups: [""], resources: [pods/portforward], verbs: [get, create]}
  - {apiGroups: [""], resources: [events], verbs: [list]}
  - {apiGroups: [""], resources: [services], verbs: [create, get, list, delete]}
  - {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [create, get, list, delete]}"""
"""All that a provider may do, as rules of a Role."""


def role(namespace: str) -> str:
    """A Role that allows what a provider does, to be given to ``kubectl apply``."""
    return (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n"
        f"metadata: {{name: openenv-trl, namespace: {namespace}}}\nrules:\n{RULES}"
    )


class ClusterUnreachable(ProviderError):
    """No API server answered."""

    def __init__(self, address: str, error: BaseException) -> None:
        self.passing = not isinstance(error, ssl.SSLError) and "certificate" not in str(error).lower()
        """Whether another try may succeed."""
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        if self.passing:
            hint = (
                "Start the cluster, connect the VPN that leads to it, or choose another with kubeconfig and context; "
                "`kubectl version` with the same context must answer."
            )
        else:
            hint = (
                "Its certificate is not that of the kubeconfig's certificate-authority: fetch the kubeconfig anew from "
                "whoever runs the cluster."
            )
        super().__init__(f"The Kubernetes API server {address} cannot be reached: {told}. {hint}")


class ApiFault(ProviderError):
    """The API server refused a call. The message says what, and what to do.

    Attributes:
        status: The HTTP status.
        reason: Kubernetes' word for it, such as ``AlreadyExists``.
        told: What the server said.
        tries: How often the call was made.
        retry_after_s: For how long the server wants to be left alone.
    """

    def __init__(self, message: str, *, status: int, reason: str, told: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.told = told
        self.tries = 1
        self.retry_after_s = 0.0

    @property
    def passing(self) -> bool:
        """Whether another try may succeed."""
        return self.status in _PASSING

    @classmethod
    def of_status(
        cls, status: Mapping[str, Any], verb: str, resource: Resource, namespace: str, *, part: str = ""
    ) -> ApiFault:
        """The fault that a ``Status`` object of the API tells of.

        Args:
            status: The object.
            verb: What was asked for, in RBAC's words.
            resource: Of which kind of object.
            namespace: Where.
            part: Of which part of it, such as ``log``.
        """
        code, reason = int(status.get("code") or 0), str(status.get("reason") or "")
        told = str(status.get("message") or reason)
        what = f"{resource.plural}/{part}" if part else resource.plural
        message = _in_words(code, reason, told, verb, what, namespace, status)
        return cls(message, status=code, reason=reason, told=told)


def _in_words(
    code: int, reason: str, told: str, verb: str, what: str, namespace: str, status: Mapping[str, Any]
) -> str:
    if code == 401:
        return (
            f"The Kubernetes cluster does not accept your credentials (401: {told}). Log in to it anew; "
            "`kubectl auth whoami` with the same context must answer."
        )
    if code == 403 and "exceeded quota" in told:
        return (
            f"The quota of the namespace '{namespace}' is used up: {told}. Ask for fewer replicas, less cpus or "
            "memory, or for a larger quota."
        )
    if code == 403 and " cannot " in told:
        return (
            f"You may not {verb} {what} in the namespace '{namespace}' (403: {told}). Have this Role made and bound to "
            f"you, or choose another namespace:\n{role(namespace)}"
        )
    if code == 403:
        return f"The cluster refuses to {verb} {what} in the namespace '{namespace}' (403): {told}."
    details: Mapping[str, Any] = status.get("details") or {}
    if code == 404 and details.get("kind") == "namespaces":
        return (
            f"There is no namespace '{namespace}'. Create it with `kubectl create namespace {namespace}`, or set "
            "namespace to one that there is."
        )
    if code == 422:
        return f"The cluster cannot use what the spec asks for (422 {reason}): {told}."
    return f"The cluster could not {verb} {what} in the namespace '{namespace}' ({code} {reason}): {told}."
