"""Why the engine would not start a container, in words that say what to change."""

from __future__ import annotations

import re

from openenv_trl.errors import ConfigurationError, ProviderError, ServerStartError
from openenv_trl.providers.docker.connection import EngineConnection
from openenv_trl.providers.docker.spec import DockerSpec


def image_missing(spec: DockerSpec, connection: EngineConnection, why: str, near: str = "") -> ServerStartError:
    """There is no image.

    Args:
        spec: What was to be run.
        connection: The engine.
        why: Why it could not be pulled either, or was not.
        near: An image that the engine has, with a name much like it.
    """
    return ServerStartError(
        f"The Docker engine at {connection.address.url} has no image {spec.image}, and {why}."
        f"{f' Is {near!r} meant?' if near else ''} {how_to_have(spec.image)}"
    )


def how_to_have(image: str) -> str:
    """How an image comes to be on an engine, as a sentence."""
    return (
        f"Build it from the environment's checkout, `docker build -f FOLDER/server/Dockerfile -t {image} .`, or with "
        f"`make images` in this package's; or pull it: `docker pull {image}`."
    )


def refused(spec: DockerSpec, name: str, message: str) -> ProviderError:
    """What the engine said when it was to create or start a container.

    Args:
        spec: What was to be run.
        name: The replica's name.
        message: The engine's own words.
    """
    low = message.lower()
    if "already allocated" in low or "address already in use" in low:
        advice = (
            f"port {spec.published_port} of {spec.host} is taken by another container or program. Set published_port "
            "to a free one, or leave it out: then the engine chooses"
        )
    elif "cannot assign requested address" in low:
        advice = f"host={spec.host!r} is no address of the engine's machine. Set host to one that is"
    elif "runtime" in low and ("unknown" in low or "invalid" in low) and spec.runtime:
        advice = (
            f"the engine has no runtime {spec.runtime!r}. Install it and name it in /etc/docker/daemon.json "
            "(`docker info` lists the runtimes), or leave runtime out"
        )
    elif "could not select device driver" in low or ("gpu" in low and spec.gpus is not None):
        advice = "the engine can give no GPUs. Install the NVIDIA Container Toolkit, or leave gpus out"
    elif "executable file not found" in low or ("no such file or directory" in low and "exec" in low):
        what = " ".join(spec.command) if spec.command else "the image's own command"
        advice = f"there is nothing in the image {spec.image} to run as `{what}`. Correct command, or the image's CMD"
    elif "unable to find user" in low or "no matching entries in passwd" in low:
        advice = f"the image {spec.image} has no user {spec.user!r}. Give user as numbers, such as '1000:1000'"
    elif re.search(r"cpus available|range of cpus", low):
        advice = f"the engine's machine cannot give cpus={spec.cpus:g}. Change cpus"
    elif re.search(r"memory limit|minimum memory", low):
        advice = f"the engine's machine cannot give memory={spec.memory} bytes. Change memory"
    else:
        advice = "the engine refused it"
    return ServerStartError(f"{name} could not be started: {advice}. The engine said: {message.strip()}")


def network_refused(message: str) -> ProviderError:
    """The engine would not make an internal network.

    Args:
        message: The engine's own words.
    """
    if "address pool" in message.lower():
        return ProviderError(
            "The Docker engine has no free addresses for another internal network. Remove unused networks "
            "(`docker network prune`), or set default-address-pools in /etc/docker/daemon.json. "
            f"The engine said: {message}",
            phase="start",
        )
    return ProviderError(f"The Docker engine would not make an internal network: {message}", phase="start")


def unreachable_from_here(spec: DockerSpec, connection: EngineConnection) -> ConfigurationError | None:
    """What is wrong with where the servers would be, if anything: seen before one is started.

    Args:
        spec: What is to be run, its defaults filled in.
        connection: The engine.
    """
    machine = connection.address.machine
    if spec.network == "internal" and (machine is not None or connection.is_desktop):
        where = "in Docker Desktop's virtual machine" if machine is None else f"on the machine {machine}"
        return ConfigurationError(
            f"network='internal' gives the servers addresses {where}, which cannot be reached from here. Run this "
            "program on the engine's machine or in a container there, or set network='open', which publishes their "
            "ports and lets them reach the internet."
        )
    if machine is not None and spec.network != "internal" and spec.host in ("127.0.0.1", "localhost", "::1"):
        return ConfigurationError(
            f"The Docker engine is on the machine {machine}, and host={spec.host!r} can be reached there only. Set "
            f"host to an address of {machine} that this machine reaches, such as '0.0.0.0' in a network that you trust."
        )
    return None
