"""Finds the cluster: by a kubeconfig, or from inside one of its pods; with errors that say what is missing."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers.kubernetes.api import PODS, ClusterApi
from openenv_trl.providers.kubernetes.spec import KubernetesSpec

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts a pod's credentials."""
_HOST_VARIABLE = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True)
class Cluster:
    """A cluster that was found."""

    api: ClusterApi
    in_cluster: bool
    """Whether this process runs in one of its pods."""


@dataclass(frozen=True)
class _Kubeconfig:
    """What is read of a kubeconfig before the client reads it: enough to say what is wrong with it."""

    paths: list[Path]
    contexts: dict[str, dict[str, Any]]
    current: str | None

    @property
    def where(self) -> str:
        return ", ".join(map(str, self.paths))


async def find_cluster(spec: KubernetesSpec) -> Cluster:
    """Find the cluster that a spec means, and make a client for it. Nothing is asked of the cluster yet.

    Raises:
        ConfigurationError: There are no credentials, or they cannot be used; the package is not installed.
    """
    _import_client()
    paths = _kubeconfig_paths(spec)
    found = [path for path in paths if path.is_file()]
    named = spec.kubeconfig is not None or spec.context is not None
    inside = bool(os.environ.get(_HOST_VARIABLE)) and (ACCOUNT_FOLDER / "token").is_file()
    if spec.in_cluster or (spec.in_cluster is None and not named and not found and inside):
        return _from_inside(spec, inside)
    if not found:
        looked = ", ".join(map(str, paths))
        raise ConfigurationError(
            f"There is no kubeconfig ({looked}), and this process does not run in a pod of a cluster. Set kubeconfig "
            "(or the variable KUBECONFIG) to the file that your cluster's tools have written, such as `aws eks "
            "update-kubeconfig`, `gcloud container clusters get-credentials` or `kind get kubeconfig`."
        )
    return await _from_kubeconfig(spec, _read(found))


def _import_client() -> Any:
    try:
        return importlib.import_module("kubernetes_asyncio.client")
    except ImportError as error:
        raise ConfigurationError(
            f"KubernetesProvider needs a package that is not installed ({error.name}): "
            "pip install 'openenv-trl[kubernetes]'"
        ) from error


def _import_config() -> Any:
    return importlib.import_module("kubernetes_asyncio.config")


def _kubeconfig_paths(spec: KubernetesSpec) -> list[Path]:
    if spec.kubeconfig is not None:
        return [spec.kubeconfig.expanduser()]
    listed = [Path(each).expanduser() for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return listed or [Path.home() / ".kube" / "config"]


def _from_inside(spec: KubernetesSpec, inside: bool) -> Cluster:
    if not inside:
        raise ConfigurationError(
            f"in_cluster is set, but this process has no credentials of a pod ({_HOST_VARIABLE} and "
            f"{ACCOUNT_FOLDER}/token). Run it in a pod with a service account, or leave in_cluster out."
        )
    configuration, config = _configuration(), _import_config()
    try:
        config.load_incluster_config(
            client_configuration=configuration,
            token_filename=str(ACCOUNT_FOLDER / "token"),
            cert_filename=str(ACCOUNT_FOLDER / "ca.crt"),
        )
    except config.ConfigException as error:
        raise ConfigurationError(f"The credentials of this pod cannot be used: {error}") from error
    own = ACCOUNT_FOLDER / "namespace"
    namespace = spec.namespace or (own.read_text().strip() if own.is_file() else "default")
    return Cluster(ClusterApi(_client(configuration), namespace), in_cluster=True)


async def _from_kubeconfig(spec: KubernetesSpec, kubeconfig: _Kubeconfig) -> Cluster:
    wanted = spec.context or kubeconfig.current
    known = ", ".join(sorted(kubeconfig.contexts)) or "none"
    if wanted is None:
        raise ConfigurationError(
            f"The kubeconfig {kubeconfig.where} has no current context. Set context to one of: {known}; or run "
            "`kubectl config use-context`."
        )
    if wanted not in kubeconfig.contexts:
        raise ConfigurationError(
            f"The kubeconfig {kubeconfig.where} has no context '{wanted}'. Set context to one of: {known}."
        )
    configuration = _configuration()

    async def load() -> None:
        config = _import_config()
        try:
            await config.load_kube_config(
                config_file=os.pathsep.join(map(str, kubeconfig.paths)),
                context=wanted,
                client_configuration=configuration,
            )
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"The context '{wanted}' of {kubeconfig.where} gets its credentials from a program that is not there: "
                f"{error.filename}. Install it, or choose another context."
            ) from error
        except config.ConfigException as error:
            raise ConfigurationError(
                f"The context '{wanted}' of {kubeconfig.where} cannot be used: {error}. `kubectl --context {wanted} "
                "version` must answer."
            ) from error
        except (KeyError, TypeError, AttributeError, AssertionError, ValueError, OSError) as error:
            raise ConfigurationError(
                f"The kubeconfig {kubeconfig.where} cannot be used: {type(error).__name__}: {error}. "
                "`kubectl config view` must be able to show it."
            ) from error

    await load()
    namespace = spec.namespace or kubeconfig.contexts[wanted].get("namespace") or "default"
    try:
        client = _client(configuration)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"The certificates of the context '{wanted}' of {kubeconfig.where} cannot be used: {error}."
        ) from error
    return Cluster(ClusterApi(client, namespace, load), in_cluster=False)


def _read(paths: list[Path]) -> _Kubeconfig:
    contexts: dict[str, dict[str, Any]] = {}
    current: str | None = None
    for path in paths:
        try:
            content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationError(f"The kubeconfig {path} cannot be read: {error}") from error
        if not isinstance(content, dict) or not {"clusters", "contexts"} <= set(cast("dict[str, Any]", content)):
            raise ConfigurationError(
                f"The file {path} is no kubeconfig: it has no clusters and contexts. Set kubeconfig to one that has."
            )
        settings = cast("dict[str, Any]", content)
        current = current or settings.get("current-context") or None
        for each in cast("list[dict[str, Any]]", settings["contexts"] or []):
            contexts.setdefault(str(each.get("name")), each.get("context") or {})
    return _Kubeconfig(paths, contexts, current)


def _configuration() -> Any:
    # A default that somebody else has set is not ours to use: only a metaclass stands between us and a fresh one.
    return type.__call__(_import_client().Configuration)


def _client(configuration: Any) -> Any:
    # Logs and watches of many replicas are open at the same time, and connections that are carried to pods.
    configuration.connection_pool_maxsize = 0
    return _import_client().ApiClient(configuration)


async def own_pod(api: ClusterApi) -> dict[str, Any] | None:
    """The pod that this process runs in, where it can be seen: what it makes may go with it."""
    name = os.environ.get("HOSTNAME", "")
    own = ACCOUNT_FOLDER / "namespace"
    if not name or not own.is_file() or own.read_text().strip() != api.namespace:
        return None  # owners and what they own are in one namespace
    try:
        return {"apiVersion": "v1", "kind": "Pod", **await api.read(PODS, name)}
    except ProviderError:
        return None
