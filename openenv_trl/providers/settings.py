"""What the settings of providers and pools have in common: which fields and numbers are refused in all of them."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationInfo, field_validator

LARGEST = 10**9
"""The largest number that can be set: as seconds 31 years. Far beyond it engines and clocks overflow."""
SIZE = "a size in bytes"
"""In the annotation of a field: it has a limit of its own."""

_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_SECONDS)})\s*")


class Settings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Base of settings whose numbers are finite, none that an engine cannot take, and not written as switches."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool):
            kinds = _kinds_of(cls, info)
            # Pydantic would read `memory: true` as one byte.
            if bool not in kinds and (int in kinds or float in kinds):
                raise ValueError(f"{str(value).lower()} is no number, and a number is meant")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _seconds_have_no_unit(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and str(info.field_name).endswith("_s") and (unit := _DURATION.fullmatch(value)):
            seconds = float(unit[1]) * _SECONDS[unit[2]]
            raise ValueError(f"{value!r:.60} is no number of seconds: write {seconds:g}")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _not_too_large(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int | float) and value > LARGEST and SIZE not in _kinds_of(cls, info):
            raise ValueError(f"the number is too large; it can be {LARGEST} at most")
        return value


def _kinds_of(model: type[BaseModel], info: ValidationInfo) -> list[Any]:
    """The types that a field may be of, and what is noted at them."""
    assert info.field_name is not None
    field = model.model_fields[info.field_name]
    return [*_kinds(field.annotation), *field.metadata]


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _kinds(each)
    elif get_origin(annotation) is Annotated:
        kind, *notes = get_args(annotation)
        yield from _kinds(kind)
        yield from notes
    else:
        yield annotation
