"""Whose fault a failed tool call is, where the environment tells of it in an observation.

An environment with tools answers a call that failed with an observation whose ``error`` has an ``error_type``. What the
model caused goes back to it as text; what it did not cause ends the episode, so that it is neither shown nor scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, field_validator

from openenv_trl.wire.tools import ToolErrorType

MODELS_FAULT = frozenset({ToolErrorType.INVALID_ARGS.value, ToolErrorType.TOOL_NOT_FOUND.value})
"""Kinds that the model caused: they count as invalid actions."""


class ToolErrorRule(BaseModel):
    """Which failed tool calls end the episode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fail_on: frozenset[str] = frozenset({ToolErrorType.TIMEOUT.value, ToolErrorType.TRANSPORT_ERROR.value})
    """Values of ``error_type`` that end the episode with ``TOOL_FAILED``. By default the two that only the
    infrastructure causes. Not ``execution_error``, the exception of the tool itself: most are answers to what the
    model asked (no such file, a syntax error in its code), and a model has to learn from them. Add it where your tools
    raise for reasons of their own, such as a database that is away."""

    @field_validator("fail_on")
    @classmethod
    def _not_the_models(cls, kinds: frozenset[str]) -> frozenset[str]:
        wrong = sorted(kinds & MODELS_FAULT)
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: the model caused these, and is to be told")
        return kinds


def tool_error(observation: Mapping[str, Any]) -> tuple[str, str] | None:
    """The ``error_type`` and message of a failed tool call's observation; None of any other observation."""
    error: Any = observation.get("error") if "tool_name" in observation else None
    if not isinstance(error, Mapping):
        return None
    fields = cast("Mapping[str, Any]", error)
    return str(fields.get("error_type", "")), str(fields.get("message", ""))
