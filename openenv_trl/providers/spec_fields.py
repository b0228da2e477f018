"""A provider's spec, as a whole or field by field, as its constructor takes either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.spec import ServerSpec
from openenv_trl.providers.specs import read_spec

SpecT = TypeVar("SpecT", bound=ServerSpec)


def spec_or_fields(model: type[SpecT], spec: SpecT | None, fields: Mapping[str, Any]) -> SpecT | None:
    """Return the spec that was given, or the one that the fields make; None where there is neither.

    Raises:
        ConfigurationError: There are both, or the fields make no spec; all that is wrong with them is named.
    """
    if not fields:
        return spec
    if spec is not None:
        raise ConfigurationError(
            f"Give a {model.__name__} or its fields, not both: {', '.join(fields)} came beside the spec."
        )
    return cast("SpecT", read_spec({"type": model.model_fields["type"].default, **fields}))


def required(spec: SpecT | None, provider: str, model: type[ServerSpec]) -> SpecT:
    """What a provider runs, once somebody has said so.

    Args:
        spec: What it was given so far.
        provider: The name of its class, for the error.
        model: The spec that it takes.

    Raises:
        ConfigurationError: Nobody said.
    """
    if spec is None:
        raise ConfigurationError(f"{provider} has nothing to run: give it a {model.__name__}.")
    return spec


def own_spec(spec: Any, provider: str, model: type[SpecT]) -> SpecT:
    """A spec that a provider was given, if it is of its own kind.

    Args:
        spec: What it was given.
        provider: The name of its class, for the error.
        model: The spec that it takes.

    Raises:
        ConfigurationError: It is another provider's.
    """
    if not isinstance(spec, model):
        raise ConfigurationError(f"{provider} runs a {model.__name__}, and was given a {type(spec).__name__}.")
    return spec
