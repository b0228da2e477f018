"""``serve --kubernetes --dry-run``: the objects of a long-lived server, as YAML for ``kubectl apply``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.kubernetes.manifests import deployment
from openenv_trl.providers.kubernetes.spec import KubernetesSpec
from openenv_trl.providers.specs import read_spec

_HEADER = "# Made by `openenv-trl serve --kubernetes --dry-run`. Apply it with `kubectl apply -f -`.\n"


def print_manifests(path: str | None, spec_file: Path | None, fields: Mapping[str, Any], *, dry_run: bool) -> str:
    """Return the YAML of a Deployment and its Service.

    Args:
        path: The environment's folder, whose ``openenv.yaml`` gives the name and port; None where the image says all.
        spec_file: A YAML file with more fields of a `KubernetesSpec`.
        fields: Fields over those of the file; None where the command line says nothing.
        dry_run: Whether to print only.

    Raises:
        ConfigurationError: Something is missing, or cannot be used.
    """
    if not dry_run:
        raise ConfigurationError(
            "serve --kubernetes writes what is to run, and leaves applying it to kubectl: "
            "openenv-trl serve --kubernetes --dry-run --image IMAGE | kubectl apply -f -"
        )
    known = {**_of_environment(path), **_of_file(spec_file)}
    known |= {key: value for key, value in fields.items() if value is not None}
    if "image" not in known:
        raise ConfigurationError(
            "Name the image to run: --image REGISTRY/NAME:TAG. Build it from the environment's Dockerfile, and push it "
            "to a registry that the cluster's nodes reach."
        )
    spec = cast("KubernetesSpec", read_spec({**known, "type": "kubernetes"}))
    return _HEADER + yaml.safe_dump_all(deployment(spec), sort_keys=False, explicit_start=True)


def variables_of(pairs: Sequence[str]) -> dict[str, str] | None:
    """Read ``NAME=VALUE`` as the command line has it; None where there is none."""
    variables: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise ConfigurationError(f"--env {pair!r}: write NAME=VALUE.")
        variables[name] = value
    return variables or None


def _of_environment(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    described = Path(path) / "openenv.yaml"
    if not described.is_file():
        raise ConfigurationError(f"{path} has no openenv.yaml. Name an environment's folder, or leave it out.")
    content: Any = yaml.safe_load(described.read_text(encoding="utf-8"))
    settings = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    return {key: settings[key] for key in ("name", "port") if settings.get(key) is not None}


def _of_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"--spec {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"--spec {path} is to have fields of a KubernetesSpec, such as `namespace: rollouts`.")
    return cast("dict[str, Any]", content)
