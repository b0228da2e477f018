"""Drawn values fit the JSON Schema that they are drawn from, and equal seeds draw equal values."""

from __future__ import annotations

import random
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from openenv_trl.environment_checker.sampling import sample


class Inner(BaseModel):
    flag: bool
    ratio: float = Field(gt=0, lt=1)
    children: list[Inner] = Field(default_factory=list, max_length=2)


class Everything(BaseModel):
    kind: Literal["one", "two"]
    fixed: Literal[7]
    small: int = Field(ge=-3, le=3)
    stepped: int = Field(gt=10, lt=40, multiple_of=5)
    low: int = Field(ge=1000)
    high: float = Field(le=-1000)
    text: str = Field(min_length=12, max_length=14)
    maybe: int | None
    pair: tuple[int, str]
    several: set[bool] = Field(min_length=1)
    numbers: list[int] = Field(min_length=2, max_length=3)
    nested: Inner
    union: Inner | list[str] | bool
    loose: dict[str, int]
    anything: Any
    optional: str = "absent"


@given(st.integers())
def test_drawn_values_fit_their_schema(seed: int) -> None:
    value = sample(Everything.model_json_schema(), random.Random(seed))
    Everything.model_validate(value)
    assert value == sample(Everything.model_json_schema(), random.Random(seed))


def test_drawn_values_reach_all_of_a_small_range() -> None:
    generator = random.Random(0)
    assert {sample({"type": "integer", "minimum": 1, "maximum": 3}, generator) for _ in range(60)} == {1, 2, 3}
    assert {sample({"enum": ["a", "b"]}, generator) for _ in range(60)} == {"a", "b"}
    both = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
    assert all(sorted(sample(both, generator)) == [False, True] for _ in range(20))
    assert {sample({"type": "boolean"}, generator) for _ in range(60)} == {True, False}
