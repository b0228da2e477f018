"""What is to be run, as data: the fields that every kind of server has, and those of every container.

Each provider has a spec of its own, told apart by ``type`` (``docker``, ``kubernetes``, ...), so that a YAML file can
name one; `openenv_trl.providers.specs` has them all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from openenv_trl.providers.settings import SIZE, Settings

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_LEAST_MEMORY = 6 * 1024**2  # what Docker takes; no Python starts in less
_LARGEST_SIZE = 2**60
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?\s*", re.IGNORECASE)


def _bytes_of(value: Any) -> Any:
    """Reads ``512m``, ``2g``, ``2GiB`` and ``2Gi`` (powers of 1024, as Docker and Kubernetes mean them)."""
    if not isinstance(value, str):
        return value
    matched = _SIZE.fullmatch(re.sub(r"(?i)i$", "ib", value.strip()))
    if matched is None:
        raise ValueError(f"{value!r:.60} is no size: write bytes, or a number with k, m or g, such as '512m'")
    size = float(matched[1]) * _UNITS[matched[2].lower()]
    return int(size) if size <= _LARGEST_SIZE else _LARGEST_SIZE + 1


def _not_too_large(size: int) -> int:
    if size > _LARGEST_SIZE:
        raise ValueError(f"the size is too large; it can be {_LARGEST_SIZE} bytes (1 EiB) at most")
    return size


Bytes = Annotated[int, BeforeValidator(_bytes_of), Field(ge=0), AfterValidator(_not_too_large), SIZE]
"""A size in bytes; in settings also ``"512m"``."""


def _text_of(value: Any) -> Any:
    if value is None:
        raise ValueError("there is no value: write a text, such as '1', or '' for an empty one")
    # YAML's `MAX_CONCURRENT_ENVS: 64` and `DEBUG: true` are meant as the text.
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text_of)]


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError(
            f"{name!r} can be no environment variable's name: it must not be empty, nor have '=' or NUL in it"
        )
    return name


def _variable_value(value: str) -> str:
    if "\0" in value:
        raise ValueError("an environment variable's value cannot have NUL in it")
    return value


def variables_of(given: Any) -> Any:
    """Read ``["NAME=VALUE"]``, as compose files also have it; a mapping stays as it is."""
    if not isinstance(given, list | tuple):
        return given
    read: dict[str, str] = {}
    for each in cast("Sequence[Any]", given):
        name, sign, value = str(each).partition("=")
        if not sign:
            raise ValueError(f"{each!r:.60} is no variable: write NAME=VALUE, or all as a mapping, {{NAME: VALUE}}")
        read[name] = value
    return read


VariableName = Annotated[str, AfterValidator(_variable_name)]
Variables = Annotated[
    dict[VariableName, Annotated[Text, AfterValidator(_variable_value)]], BeforeValidator(variables_of)
]
"""Environment variables, as a process can be given them."""


def _words_of(command: Any) -> Any:
    """Reads a command that is written as in a shell; it is run without one."""
    if not isinstance(command, str):
        return command
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{command!r:.60} cannot be split into words ({error}): write a list of them") from None
    if not words:
        raise ValueError("it is empty: write the program and its arguments, or leave it out")
    return words


Words = Annotated[list[str], BeforeValidator(_words_of)]
"""A command: its words, or one text with them as a shell splits it."""


# Whoever stops a provider is done with its servers: their episodes get no time to end, unless the variable says so.
SERVER_DEFAULTS = {"PYTHONUNBUFFERED": "1", "OPENENV_TRL_DRAIN_TIMEOUT_S": "0"}
"""Environment variables of every server that a provider starts, where the user does not set them."""


class ServerSpec(Settings, frozen=True):
    """Servers of one environment, however they run."""

    type: str
    """Which provider runs it."""
    name: str | None = None
    """What replicas are called in logs and by their engine; after the image or project if None."""
    replicas: int = Field(default=1, ge=1)
    """Servers that are started together."""
    env_vars: Variables = Field(default_factory=dict[str, str])
    """Environment variables of each server."""
    ready_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds within which each server must answer its health check, the pull of its image not counted."""
    stop_grace_s: float = Field(default=5.0, ge=0)
    """Seconds between asking a server to end and killing it."""
    health_path: str = "/health"
    """The path that is asked for readiness."""
    log_path: Path | None = None
    """A file to which the servers' lines are appended."""


class ContainerSpec(ServerSpec, frozen=True):
    """Servers in containers of an image. What is None is as the image's labels say, then as the engine does."""

    image: str = Field(min_length=1)
    """The image to run, such as ``echo-env:latest``."""
    command: Words | None = None
    """What to run in it, as words or as one text, in place of the image's own command."""
    port: int = Field(default=8000, ge=1, le=65535)
    """The port on which the server listens inside its container."""
    labels: dict[str, Text] = Field(default_factory=dict[str, Text])
    """Labels beside those that say whose the container is."""
    cpus: float | None = Field(default=None, ge=0.001)
    """CPU cores at most."""
    memory: Bytes | None = None
    """Memory at most; a server that needs more is killed."""
    pids: int | None = Field(default=None, ge=1)
    """Processes and threads at most."""
    read_only: bool | None = None
    """Whether the root file system is read-only, with /tmp in memory."""
    tmpfs: Bytes = 256 * 1024**2
    """The size of /tmp, where the root file system is read-only."""
    network: Literal["open", "internal"] | None = None
    """``internal``: the server can be reached from its owner, and itself reaches nothing outside its own network."""
    user: str | None = None
    """The user to run as, ``1000:1000``; the image's own if None."""
    drop_capabilities: bool = True
    """Whether the server runs without any Linux capability, and cannot gain one."""
    lease_s: float = Field(default=60.0, gt=0)
    """Seconds after which a server ends by itself, when its owner has stopped to renew its lease."""

    @field_validator("memory")
    @classmethod
    def _enough_memory(cls, size: int | None) -> int | None:
        if size is not None and 0 < size < _LEAST_MEMORY:
            meant = f"is '{size}m' meant? " if size < 2**16 else ""
            raise ValueError(f"{meant}{size} bytes is too little for any server; 6m is the least")
        return size
