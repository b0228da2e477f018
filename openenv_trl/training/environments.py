"""The environments of a run: where each is served, and what it plays differently from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import Self

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout import RolloutLimits, RolloutStrategies
from openenv_trl.rollout.servers import ProvidedServers, Servers

ENVIRONMENT_COLUMN = "environment"
"""The dataset column that says which environment of several a row is played in; it does not go to ``reset``."""

ALONE = ""
"""The name of an environment that is the only one."""


class EnvironmentSpec(BaseModel):
    """One environment of several. What is None is as the rollout says for all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    base_urls: tuple[str, ...] = ()
    """Its servers' addresses, such as ``"http://localhost:8000"``; several serve the same environment."""
    provided: ProvidedServers | None = None
    """What starts its servers, in place of addresses."""
    actions: Any = None
    """How the model's text becomes actions (an ``ActionInterface``); discovered from the environment if None."""
    limits: RolloutLimits | None = None
    """Turns, tokens and deadlines of its episodes."""
    strategies: RolloutStrategies | None = None
    """What is done when one of its episodes fails or is slow."""
    headers: dict[str, str] | None = None
    """HTTP headers of every connection."""
    sessions_per_server: int | None = Field(default=None, ge=1)
    """Sessions to hold open on each of its servers at most."""

    @field_validator("base_urls", mode="before")
    @classmethod
    def _one_address_is_a_list_of_one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _there_is_a_server(self) -> Self:
        if bool(self.base_urls) == (self.provided is not None):
            raise ValueError("give base_urls, or what starts its servers (provided), and not both")
        return self

    @property
    def servers(self) -> Servers:
        """The addresses, or what starts the servers."""
        return self.base_urls if self.provided is None else self.provided


EnvironmentAddresses: TypeAlias = "str | Sequence[str] | ProvidedServers | EnvironmentSpec"
"""One environment: an address, several, what starts its servers, or a specification."""


def environment_specs(
    given: EnvironmentAddresses | Mapping[str, EnvironmentAddresses] | None,
) -> dict[str, EnvironmentSpec]:
    """The environments by name; one alone has the name "".

    Raises:
        ConfigurationError: There is none, one has no address, or a name cannot be used.
    """
    if not given:
        raise ConfigurationError(
            "There are no environments (base_urls is empty): give the address of at least one environment server, or "
            'a dict like {"blackjack": ["http://localhost:8000"]}.'
        )
    if not isinstance(given, Mapping):
        return {ALONE: _spec(given, "the environment")}
    named = cast("Mapping[Any, EnvironmentAddresses]", given)
    specs: dict[str, EnvironmentSpec] = {}
    for name, addresses in named.items():
        if not isinstance(name, str) or not name.strip() or "/" in name:
            raise ConfigurationError(f"{name!r} cannot name an environment: use a word without '/'.")
        specs[name] = _spec(addresses, f"environment '{name}'")
    return specs


def _spec(given: Any, what: str) -> EnvironmentSpec:
    if isinstance(given, EnvironmentSpec):
        return given
    if isinstance(given, ProvidedServers):
        return EnvironmentSpec(provided=given)
    if not given:
        raise ConfigurationError(f"{what} has no address (base_urls is empty): give that of at least one server.")
    if isinstance(given, Mapping):
        raise ConfigurationError(f"Write EnvironmentSpec(base_urls=[...], ...) for {what}, not a dict.")
    return EnvironmentSpec(base_urls=given)
