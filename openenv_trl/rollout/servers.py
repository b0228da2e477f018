"""Where the sessions of a run come from: servers that run already, by their addresses, or a provider that starts them.

What is to be started is data here; `open_pool` starts it, as many replicas as are needed, and ends it with its block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.replica_pool import PoolSettings
from openenv_trl.providers.spec import ServerSpec
from openenv_trl.providers.specs import read_spec
from openenv_trl.settings_errors import problems


@dataclass(frozen=True)
class ProvidedServers:
    """Servers that a provider starts and replaces while a pool of sessions on them is open.

    Attributes:
        spec: What is started, and how: the spec of a provider.
        pool: How many replicas there are, and when.
    """

    spec: ServerSpec
    pool: PoolSettings

    def __str__(self) -> str:
        what = getattr(self.spec, "image", None) or getattr(self.spec, "environment", None) or self.spec.name
        return f"servers of type {self.spec.type}" + (f" ({what})" if what else "")

    @property
    def plan(self) -> str:
        """What is going to be started, and when, for a line that tells of it."""
        least, most = self.pool.min_replicas, self.pool.max_replicas
        count = f"{most}" if least == most else f"{least} to {most}"
        return f"{count} {self}, started with the first episode, {self.pool.sessions_per_replica} sessions on each"


Servers = Sequence[str] | ProvidedServers
"""Addresses of servers of one environment, or what starts them."""


def provided_servers(
    provider: Mapping[str, Any] | ServerSpec, pool: Mapping[str, Any] | PoolSettings | None, *, sessions_per_server: int
) -> ProvidedServers:
    """Read what a settings file says of a provider and of the pool over its replicas.

    Args:
        provider: ``type``, and the fields of that type's spec.
        pool: The fields of `PoolSettings`; by default as many replicas as the spec says, always.
        sessions_per_server: Where the pool does not say.

    Raises:
        ConfigurationError: One of them cannot be used; all that is wrong is named.
    """
    spec = read_spec(provider)
    if isinstance(pool, PoolSettings):
        return _fitting(spec, pool)
    # Also what a YAML file gives in place of a mapping.
    if pool is not None and not isinstance(pool, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"A pool is given by its settings, and {pool!r:.60} are none. Write {{max_replicas: 4}}, say. See "
            "docs/pool.md."
        )
    values = {"sessions_per_replica": sessions_per_server, **(pool or {})}
    if "max_replicas" not in values:
        least = values.get("min_replicas", 0)
        # What is no number the settings refuse by themselves.
        values["max_replicas"] = max(spec.replicas, least) if isinstance(least, int) else spec.replicas
    values.setdefault("min_replicas", values["max_replicas"] if "idle_s" not in values else 0)
    try:
        settings = PoolSettings.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(
            f"The pool cannot be used: {problems(error, PoolSettings)}. See docs/pool.md."
        ) from None
    return _fitting(spec, settings)


def _fitting(spec: ServerSpec, pool: PoolSettings) -> ProvidedServers:
    """Both, where they do not contradict each other."""
    if pool.max_replicas == 0:
        raise ConfigurationError(
            "pool.max_replicas is 0, so the provider would start no server, and no episode could be played. Set "
            "pool.max_replicas to 1 or more, or leave it out."
        )
    # Servers given by their addresses are counted, not asked for.
    if spec.type != "remote" and "replicas" in spec.model_fields_set and spec.replicas > pool.max_replicas:
        raise ConfigurationError(
            f"provider.replicas={spec.replicas} is more than pool.max_replicas={pool.max_replicas}. In a run the pool "
            f"says how many replicas there are: raise pool.max_replicas to {spec.replicas}, or leave out "
            "provider.replicas."
        )
    return ProvidedServers(spec, pool)


def most_sessions(servers: Servers, sessions_per_server: int) -> int:
    """How many sessions there can be at once, where each address holds so many."""
    if isinstance(servers, ProvidedServers):
        return servers.pool.max_replicas * servers.pool.sessions_per_replica
    return len(servers) * sessions_per_server


def server_count(servers: Servers) -> int:
    """How many servers there are, or can be."""
    return servers.pool.max_replicas if isinstance(servers, ProvidedServers) else len(servers)


def described(servers: Servers) -> str:
    """The servers, for a message."""
    return str(servers) if isinstance(servers, ProvidedServers) else ", ".join(servers)
