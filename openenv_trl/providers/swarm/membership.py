"""Whether an engine can run what a spec asks for: it manages a Swarm, the image may be run so, its network is there."""

from __future__ import annotations

from collections.abc import Mapping

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers.docker.spec import DEFAULTS, SANDBOX_DEFAULTS, SANDBOX_LABEL
from openenv_trl.providers.swarm.engine import SwarmEngine
from openenv_trl.providers.swarm.spec import SwarmSpec


async def join(engine: SwarmEngine, spec: SwarmSpec) -> None:
    """Makes sure that an engine manages a Swarm.

    Args:
        engine: The engine.
        spec: What is to be run. It says whether the engine may become a Swarm where it is in none.

    Raises:
        ProviderError: It does not; the message says what to run.
    """
    swarm = await engine.swarm_state()
    if swarm.get("LocalNodeState") == "inactive" and spec.auto_init_swarm:
        await engine.become_swarm(spec.init_listen_addr, spec.init_data_port)
        swarm = await engine.swarm_state()
    state = swarm.get("LocalNodeState")
    if state == "locked":
        raise ProviderError(
            f"The Swarm of the Docker engine at {engine.where} is locked; run `docker swarm unlock`.", phase="start"
        )
    if state == "active" and not swarm.get("ControlAvailable"):
        managers = ", ".join(each["Addr"] for each in swarm.get("RemoteManagers") or ())
        raise ProviderError(
            f"The Docker engine at {engine.where} is a worker of its Swarm, and only managers make services. Set "
            f"docker_host, or DOCKER_HOST, to a manager{f' (the Swarm has {managers})' if managers else ''}.",
            phase="start",
        )
    if state != "active":
        raise ProviderError(
            f"The Docker engine at {engine.where} is in no Swarm. Run `docker swarm init` there (one machine is "
            "enough), or pass auto_init_swarm=True.",
            phase="start",
        )
    engine.node_id = swarm["NodeID"]


def with_defaults(spec: SwarmSpec, image_labels: Mapping[str, str]) -> SwarmSpec:
    """Fills the fields that are None, as the image's labels say.

    Args:
        spec: What the user gave; its values stay.
        image_labels: The labels of its image; none where the manager does not have the image.

    Raises:
        ConfigurationError: The image is a sandbox, and the spec lets it out without saying so.
    """
    sandbox = image_labels.get(SANDBOX_LABEL, "").lower() in ("true", "1", "yes")
    if sandbox and spec.network is None and spec.publish != "network":
        raise ConfigurationError(
            f"The image {spec.image!r} is a sandbox for code that nobody has read ({SANDBOX_LABEL}), and should reach "
            "nothing; but Swarm publishes no port of an internal network. Set publish to 'network' and overlay_network "
            "to one that was made with --internal; or set network to 'open', which lets that code out."
        )
    defaults = SANDBOX_DEFAULTS if sandbox else DEFAULTS
    return spec.model_copy(update={key: value for key, value in defaults.items() if getattr(spec, key) is None})


async def check_network(engine: SwarmEngine, spec: SwarmSpec) -> None:
    """Makes sure that the spec's network is there, and keeps servers in where they are not to get out.

    Raises:
        ConfigurationError: It is of another kind.
        ProviderError: There is none; the message has the command that makes it.
    """
    name = spec.overlay_network
    if name is None:
        return
    internal = spec.network == "internal"
    found = await engine.network(name)
    make = f"docker network create --driver overlay --attachable{' --internal' if internal else ''} {name}"
    if found is None:
        raise ProviderError(f"The Swarm has no network {name!r}. Make it: `{make}`.", phase="start")
    if found["Scope"] != "swarm":
        raise ConfigurationError(f"overlay_network={name!r} is of this node only. Make one of the Swarm: `{make}`.")
    if internal and not found["Internal"]:
        raise ConfigurationError(
            f"network is 'internal', and the network {name!r} lets servers reach the outside. Make one that does not: "
            f"`{make}`."
        )
