"""What is wrong with settings, in one sentence: pydantic's errors with the names that were meant."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError


def problems(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """All that pydantic found wrong, each with its field.

    Args:
        error: What it raised.
        model: What was read, to guess which of its fields an unknown one was meant to be.

    Example:
        >>> problems(error, PoolSettings)
        "it has no field 'max_replica' (is 'max_replicas' meant?)"
    """
    return "; ".join(_problem(each, model) for each in error.errors())


def _problem(error: Any, model: type[BaseModel] | None) -> str:
    name = ".".join(map(str, error["loc"]))
    if error["type"] != "extra_forbidden":
        text = str(error["msg"]).removeprefix("Value error, ")
        return f"{name}: {text}" if name else text
    near = difflib.get_close_matches(name, model.model_fields, n=1) if model is not None else []
    return f"it has no field '{name}'" + (f" (is '{near[0]}' meant?)" if near else "")
