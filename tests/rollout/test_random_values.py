"""Random values fit their schema, as a validator of JSON Schema judges."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.random_values import random_value

numbers = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        "minimum": st.integers(-50, 0),
        "exclusiveMinimum": st.integers(-50, 0),
        "maximum": st.integers(5, 50),
        "exclusiveMaximum": st.integers(5, 50),
        "multipleOf": st.sampled_from([1, 2, 3]),
    },
)
strings = st.fixed_dictionaries(
    {"type": st.just("string")}, optional={"minLength": st.integers(0, 3), "maxLength": st.integers(3, 8)}
)
finite = st.one_of(
    st.builds(lambda values: {"enum": values}, st.lists(st.integers() | st.text(max_size=3), min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, st.none() | st.booleans()),
    st.just({"type": ["boolean", "null"]}),
)


def compound(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.builds(
        lambda items, least: {"type": "array", "items": items, "minItems": least, "maxItems": 4},
        inner,
        st.integers(0, 3),
    )
    tuples = st.builds(
        lambda first: {"type": "array", "prefixItems": first, "items": False, "minItems": len(first)},
        st.lists(inner, min_size=1, max_size=3),
    )
    objects = st.builds(
        lambda fields: {
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        },
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    )
    merged = st.builds(
        lambda one, other: {
            "allOf": [
                {"type": "object", "properties": {"a": one}, "required": ["a"]},
                {"properties": {"b": other}, "required": ["b"]},
            ]
        },
        inner,
        inner,
    )
    return st.one_of(arrays, tuples, objects, merged, st.builds(lambda one: {"anyOf": [one]}, inner))


@given(st.recursive(numbers | strings | finite, compound, max_leaves=6), st.integers(0, 100))
def test_a_random_value_fits_its_schema(schema: dict[str, Any], seed: int) -> None:
    jsonschema.Draft202012Validator(schema).validate(random_value(schema, random.Random(seed), schema))


def test_references_and_what_stands_beside_them() -> None:
    schema = {
        "$defs": {"small": {"type": "integer", "minimum": 1, "maximum": 9}},
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/small", "maximum": 3}},
        "required": ["x"],
    }
    drawn = {random_value(schema, random.Random(seed), schema)["x"] for seed in range(60)}
    assert drawn == {1, 2, 3}


def test_distinct_items_are_distinct() -> None:
    schema = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True}
    assert sorted(random_value(schema, random.Random(1), schema)) == [1, 2, 3]


def test_draft_4s_exclusive_bounds_are_kept_to() -> None:
    schema = {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 2, "exclusiveMaximum": True}
    assert {random_value(schema, random.Random(seed), schema) for seed in range(20)} == {1}


def test_a_schema_that_nothing_fits_is_refused() -> None:
    for schema in ({"type": "integer", "minimum": 3, "maximum": 2}, {"type": "sound"}):
        with pytest.raises(ConfigurationError):
            random_value(schema, random.Random(0), schema)
