"""A client for any environment: dicts in, dicts out, no types to import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

from openenv_trl.client.env_client import EnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.types import StepResult
from openenv_trl.wire.observations import parse_step_result


class GenericAction(dict[str, Any]):
    """An action as a dict, written like a call: ``GenericAction(move="hit")``."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)


class GenericEnvClient(EnvClient[Any, dict[str, Any], dict[str, Any]]):
    """One session on any environment server. Actions are mappings or pydantic models; what comes back are dicts.

    Example:
        >>> with GenericEnvClient("http://localhost:8000").sync() as env:
        ...     print(env.reset(seed=7).observation)
    """

    def _step_payload(self, action: Mapping[str, Any] | BaseModel) -> dict[str, Any]:
        if isinstance(action, BaseModel):
            return action.model_dump()
        if not isinstance(cast("object", action), Mapping):
            raise ConfigurationError(f"An action must be a mapping or a pydantic model, not a {type(action).__name__}.")
        return dict(action)

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[dict[str, Any]]:
        return parse_step_result(payload)

    def _parse_state(self, payload: dict[str, Any]) -> dict[str, Any]:
        return payload
