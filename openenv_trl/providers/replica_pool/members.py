"""What a pool is made of: providers that start replicas, and servers that run already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.base import Provider, Replica
from openenv_trl.providers.server_identity import refuse_twins
from openenv_trl.providers.spec import ServerSpec
from openenv_trl.providers.specs import make_provider

PoolMember = Provider | ServerSpec | Mapping[str, Any] | Replica | str
"""A provider; its spec, or that as a settings file has it; or the address of a server, as a `Replica` with headers."""


def members_of(members: PoolMember | Sequence[PoolMember]) -> tuple[list[Provider], list[Replica]]:
    """Tell providers from servers that run already.

    Args:
        members: One, or several. A provider of type ``remote`` counts as the servers that it names.

    Raises:
        ConfigurationError: There is none, or a server is named twice; or a spec cannot be used.
    """
    single = isinstance(members, str | Mapping | Provider | ServerSpec | Replica)
    providers: list[Provider] = []
    remotes: list[Replica] = []
    for member in [members] if single else members:
        if isinstance(member, str):
            remotes.append(_remote(member, {}))
        elif isinstance(member, Replica):
            remotes.append(member)
        else:
            provider = member if isinstance(member, Provider) else make_provider(member)
            spec: Any = getattr(provider, "spec", None)
            if getattr(spec, "type", None) == "remote":
                remotes += [_remote(url, spec.headers) for url in spec.urls]
            else:
                providers.append(provider)
    if not providers and not remotes:
        raise ConfigurationError("The pool has no members: give it a provider, or the addresses of servers.")
    refuse_twins([remote.base_url for remote in remotes])
    return providers, remotes


def _remote(url: str, headers: Mapping[str, str]) -> Replica:
    from openenv_trl.providers.web_health import http_address

    address = http_address(url)
    return Replica(address, address, url, dict(headers))
