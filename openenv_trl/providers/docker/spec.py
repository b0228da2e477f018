"""What a container of a Docker engine is given: its fields, what is safe by default, and the engine's form of it."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from openenv_trl.providers.spec import Bytes, ContainerSpec

SANDBOX_LABEL = "openenv-trl.sandbox"
"""An image with this label set to ``true`` runs code that nobody has read: see `SANDBOX_DEFAULTS`."""

DEFAULTS: Mapping[str, Any] = {"pids": 512, "network": "open", "read_only": False}
"""What fields that are None become."""

SANDBOX_DEFAULTS: Mapping[str, Any] = {
    "read_only": True,
    "network": "internal",
    "pids": 2048,  # 64 sessions of the coding environment with 16 threads each, and those that judge them
    "memory": 2 * 1024**3,
    "cpus": 1.0,
}
"""What fields that are None become, where the image is labelled as a sandbox."""

_CONTAINER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
# A server that writes a line for each request fills a disk in a training run; `docker logs` still shows the last ones.
_LOGS = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}}
# The engine passes questions for outside names on, also from an internal network, and so lets data out. It asks a name
# server that is given from within the container's network, where none is; code that looks for one is told so soon.
_NO_NAME_SERVER = {"Dns": ["127.0.0.1"], "DnsOptions": ["timeout:1", "attempts:1"]}


class DockerSpec(ContainerSpec, frozen=True):
    """Servers in containers of a Docker engine."""

    type: Literal["docker"] = "docker"
    docker_host: str | None = None
    """The engine's address, such as ``unix:///var/run/docker.sock`` or ``ssh://user@host``; found as the docker command
    finds it if None: DOCKER_HOST, the current context, the usual sockets."""
    host: str = "127.0.0.1"
    """The address of the engine's machine on which the server is published; not on an internal network."""
    published_port: int | None = Field(default=None, ge=1, le=65535)
    """The port there; the engine chooses a free one if None. With one replica only."""
    pull: Literal["missing", "never", "always"] = "missing"
    """When the image is pulled from its registry."""
    runtime: str | None = None
    """The engine's runtime to use, such as ``runsc`` (gVisor); its default one if None."""
    seccomp_profile: Path | None = None
    """A file with the system calls that are allowed, in place of the engine's own list. The coding environment has one
    that lets its sandbox use namespaces."""
    shm_size: Bytes | None = None
    """The size of /dev/shm; the engine's default (64 MiB) if None."""
    gpus: int | Literal["all"] | None = None
    """GPUs that the server may use."""

    @field_validator("name")
    @classmethod
    def _name_of_a_container(cls, name: str | None) -> str | None:
        if name is not None and not _CONTAINER_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r:.80} can be no container's name: use letters, digits, '_', '.' and '-'; a letter or digit "
                "is first"
            )
        return name

    @field_validator("seccomp_profile")
    @classmethod
    def _profile_can_be_read(cls, path: Path | None) -> Path | None:
        if path is not None:
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except OSError as error:
                raise ValueError(f"the file {path} cannot be read: {error.strerror}") from error
            except ValueError as error:
                raise ValueError(f"the file {path} is no seccomp profile: {error}") from error
        return path

    @model_validator(mode="after")
    def _one_port_for_one_replica(self) -> Self:
        if self.published_port is not None and self.replicas > 1:
            raise ValueError(
                f"published_port={self.published_port} is one port, and replicas={self.replicas}: leave published_port "
                "out, so that the engine gives each replica a port of its own"
            )
        if self.published_port is not None and self.network == "internal":
            raise ValueError(
                "on an internal network nothing is published: leave published_port out, or set network to 'open'"
            )
        return self


def with_defaults(spec: DockerSpec, image_labels: Mapping[str, str]) -> DockerSpec:
    """Fill the fields that are None, as the image's labels say.

    Args:
        spec: What the user gave; its values stay.
        image_labels: The labels of its image.
    """
    sandbox = image_labels.get(SANDBOX_LABEL, "").lower() in ("true", "1", "yes")
    defaults = dict(SANDBOX_DEFAULTS if sandbox else DEFAULTS)
    if spec.published_port is not None:
        defaults["network"] = "open"  # whoever names a port wants it published
    return spec.model_copy(update={key: value for key, value in defaults.items() if getattr(spec, key) is None})


def container_config(
    spec: DockerSpec,
    labels: Mapping[str, str],
    variables: Mapping[str, str],
    network: str | None,
    volumes: Sequence[str] = (),
) -> dict[str, Any]:
    """The engine's form of one replica.

    Args:
        spec: What to run, its defaults filled in.
        labels: Labels that go over the spec's own.
        variables: Environment variables that go over the spec's own.
        network: The internal network to be on; None where the server is published.
        volumes: The folders for which the image declares volumes.
    """
    port = f"{spec.port}/tcp"
    host: dict[str, Any] = {
        # The engine itself removes the container and its anonymous volumes, also when nobody is left to ask for it.
        "AutoRemove": True,
        # As process 1 a shell ignores SIGTERM, and a server does not bury its dead children.
        "Init": True,
        "PidsLimit": spec.pids,
        "ReadonlyRootfs": bool(spec.read_only),
        "LogConfig": _LOGS,
    }
    security: list[str] = []
    if spec.drop_capabilities:
        host["CapDrop"] = ["ALL"]
        security.append("no-new-privileges")
    if spec.seccomp_profile is not None:
        security.append(f"seccomp={spec.seccomp_profile.read_text(encoding='utf-8')}")
    if security:
        host["SecurityOpt"] = security
    if spec.cpus is not None:
        host["NanoCpus"] = int(spec.cpus * 1e9)
    if spec.memory is not None:
        host |= {"Memory": spec.memory, "MemorySwap": spec.memory}
    if spec.read_only:
        host["Tmpfs"] = {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={spec.tmpfs}"}
    if targets := _named_volumes(volumes, host.get("Tmpfs", ())):
        # They would be there without being named, and go with their container; named, they carry the owner's labels.
        options = {"Labels": dict(labels)}
        host["Mounts"] = [{"Type": "volume", "Target": path, "VolumeOptions": options} for path in targets]
    if spec.shm_size is not None:
        host["ShmSize"] = spec.shm_size
    if spec.runtime is not None:
        host["Runtime"] = spec.runtime
    if spec.gpus is not None:
        count = -1 if spec.gpus == "all" else spec.gpus
        host["DeviceRequests"] = [{"Count": count, "Capabilities": [["gpu"]]}]
    if network is None:
        published = "" if spec.published_port is None else str(spec.published_port)
        host["PortBindings"] = {port: [{"HostIp": spec.host, "HostPort": published}]}
    else:
        host |= {"NetworkMode": network, **_NO_NAME_SERVER}
    config: dict[str, Any] = {
        "Image": spec.image,
        "Env": [f"{key}={value}" for key, value in {**spec.env_vars, **variables}.items()],
        "Labels": {**spec.labels, **labels},
        "ExposedPorts": {port: {}},
        # The provider asks for readiness itself; the image's own check would start a process every few seconds.
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host,
    }
    if spec.command is not None:
        config |= {"Entrypoint": spec.command, "Cmd": []}
    if spec.user is not None:
        config["User"] = spec.user
    return config


def _named_volumes(declared: Sequence[str], taken: Container[str]) -> list[str]:
    """The folders that can be named as mounts: each once, and none that something else is mounted on.

    An image may declare the same one in several forms, and what no mount may be called, such as a relative path. These
    the engine makes volumes of by itself, as with `docker run`.
    """
    absolute = [posixpath.normpath("/" + path.lstrip("/")) for path in declared if path.startswith("/")]
    return [path for path in dict.fromkeys(absolute) if path != "/" and path not in taken]


def network_config(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The engine's form of an internal network, on which the containers do not see one another either.

    Args:
        name: Its name. The bridge has a name that starts with ``oetrl``, so that one firewall rule holds for all.
        labels: Its labels.
    """
    return {
        "Name": name,
        "Driver": "bridge",
        "Internal": True,
        "Labels": dict(labels),
        "Options": {
            "com.docker.network.bridge.enable_icc": "false",
            "com.docker.network.bridge.name": f"oetrl{name[-10:]}",
        },
    }
