"""Spaces and their values as they travel: JSON, JSON Schema, and both wires."""

from __future__ import annotations

import json
import random
from typing import Any

import gymnasium
import jsonschema
import numpy
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st

from openenv_trl.environment_checker.sampling import sample
from openenv_trl.errors import ConfigurationError
from openenv_trl.gymnasium import json_of_space, space_of_json
from openenv_trl.gymnasium.space_bounds import require_within
from openenv_trl.gymnasium.space_schema import schema_of_space
from openenv_trl.gymnasium.space_values import SpaceValueError, read_value, write_value
from openenv_trl.wire.codec import encode
from openenv_trl.wire.native_codec import pack, unpack

AnySpace = gymnasium.Space[Any]

_floats = st.floats(-1e6, 1e6, width=32)
_leaves = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 200), st.integers(-5, 5)),
    st.builds(
        lambda nvec, dtype: spaces.MultiDiscrete(nvec, dtype=dtype),
        st.lists(st.integers(1, 9), min_size=1, max_size=4),
        st.sampled_from([numpy.int64, numpy.int16]),
    ),
    st.builds(
        lambda nvec, start: spaces.MultiDiscrete(numpy.array(nvec), start=numpy.array(start)),
        st.just([[2, 3], [4, 5]]),
        st.just([[0, 1], [2, -3]]),
    ),
    st.builds(spaces.MultiBinary, st.one_of(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=3))),
    st.builds(
        lambda low, span, shape, dtype: spaces.Box(low, low + span, tuple(shape), dtype),
        _floats,
        st.floats(0, 100, width=16),
        st.lists(st.integers(1, 3), max_size=3),
        st.sampled_from([numpy.float32, numpy.float64]),
    ),
    st.sampled_from(
        [
            spaces.Box(0, 255, (4, 4, 3), numpy.uint8),
            spaces.Box(-numpy.inf, numpy.inf, (2,), numpy.float32),
            spaces.Box(numpy.array([0.0, -numpy.inf]), numpy.array([0.1, 1.0]), dtype=numpy.float64),
            spaces.Box(-(2**63), 2**63 - 2, (2,), numpy.int64),
            spaces.Box(0, 1, (3,), numpy.bool_),
            spaces.Box(-1, 1, (2,), numpy.float16),
            spaces.Discrete(4, dtype=numpy.int32),
        ]
    ),
    st.builds(lambda least, more: spaces.Text(least + more, min_length=least), st.integers(0, 3), st.integers(1, 9)),
    st.just(spaces.Text(5, min_length=1, charset='äb"^]-\\ ')),
    st.builds(spaces.Graph, st.just(spaces.Box(0, 1, (2,))), st.sampled_from([None, spaces.Discrete(3)])),
)
_some = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.lists(inner, min_size=1, max_size=3).map(spaces.OneOf),
        inner.map(spaces.Sequence),
    ),
    max_leaves=5,
)


def _plain(value: Any) -> Any:
    """The value with integers as Python's: a Discrete's sample is a number, of whatever type."""
    if isinstance(value, numpy.integer):
        return int(value)
    if isinstance(value, spaces.GraphInstance):
        return value
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(_some)
@settings(max_examples=60)
def test_a_space_comes_back_equal_from_its_json(space: AnySpace) -> None:
    back = space_of_json(json.loads(json.dumps(json_of_space(space))))
    assert back == space
    assert back.dtype == space.dtype
    assert json_of_space(back) == json_of_space(space)


@given(_some, st.integers(0, 1000))
@settings(max_examples=80)
def test_a_value_comes_back_to_the_last_bit_on_both_wires(space: AnySpace, seed: int) -> None:
    space.seed(seed)
    value = space.sample()
    for travel in (lambda sent: json.loads(encode(sent)), lambda sent: unpack(pack(sent))):
        back = read_value(space, travel(write_value(space, value)))
        assert space.contains(back)
        assert data_equivalence(_plain(back), _plain(value), exact=True)


@given(_some, st.integers(0, 1000))
@settings(max_examples=60)
def test_every_value_of_a_space_fits_its_json_schema(space: AnySpace, seed: int) -> None:
    schema = schema_of_space(space)
    jsonschema.Draft202012Validator.check_schema(schema)
    space.seed(seed)
    jsonschema.validate(json.loads(encode(write_value(space, space.sample()))), schema)


@pytest.mark.parametrize("dtype", [numpy.float16, numpy.float32, numpy.float64])
@pytest.mark.parametrize("bound", [6.103515625e-05, 0.1, -4.8, 1e-7])
def test_an_element_at_its_bound_fits_its_json_schema(bound: float, dtype: Any) -> None:
    space = spaces.Box(bound, bound, (2,), dtype)
    jsonschema.validate(json.loads(encode(write_value(space, space.low))), schema_of_space(space))


@given(_some, st.integers(0, 1000))
@settings(max_examples=60)
def test_what_is_drawn_from_the_json_schema_lies_in_the_space(space: AnySpace, seed: int) -> None:
    require_within(space, read_value(space, sample(schema_of_space(space), random.Random(seed))), "value")


def test_an_array_that_was_received_can_be_written_to() -> None:
    space = spaces.Box(0, 255, (2, 2), numpy.uint8)
    sent = unpack(pack(numpy.ones((2, 2), numpy.uint8)))
    assert not sent.flags.writeable
    read_value(space, sent)[0, 0] = 7


@pytest.mark.parametrize(
    ("space", "value", "says"),
    [
        (spaces.Discrete(2), 2, r"x=2 is outside of Discrete\(2\): give an integer from 0 to 1"),
        (spaces.Discrete(2), 0.5, "x=0.5 is no integer"),
        (spaces.Discrete(2), True, "x=True is no integer"),
        (spaces.Discrete(2), "left", "x='left' is no integer"),
        (spaces.Discrete(2), None, "x=None is no integer"),
        (spaces.Discrete(2), float("inf"), "x=inf is no integer"),
        (spaces.Box(-2, 2, (1,)), [2.5], r"x\[0\]=2.5 is out of bounds: give a number from -2.0 to 2.0"),
        (spaces.Box(-2, 2, (2,)), [1], r"x has the shape \(1,\), and .* has \(2,\)"),
        (spaces.Box(-2, 2, (2,)), [[1], [1, 2]], "x=.* is no array of numbers of one shape"),
        (spaces.Box(-2, 2, (1,)), "left", "x='left' is no array of numbers"),
        (spaces.Box(-2, 2, (1,)), [None], "a number that is not finite"),
        (spaces.Box(-2, 2, (1,)), numpy.array([numpy.nan]), r"x\[0\]=nan is out of bounds"),
        (spaces.Box(0, 255, (1,), numpy.uint8), [256], "holds a number that is no uint8"),
        (spaces.Box(0, 255, (1,), numpy.uint8), [-1], "holds a number that is no uint8"),
        (spaces.Box(0, 9, (1,), numpy.int64), [1.5], "holds a number that is no int64"),
        (spaces.Box(0, 9, (1,), numpy.int64), [2**70], "holds a number that is no int64"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], r"x\[1\]=3 is out of bounds: give a number from 0 to 2"),
        (spaces.MultiBinary(2), [1, 2], r"x\[1\]=2 is out of bounds"),
        (spaces.Text(3), "abcd", "x has 4 characters: give 1 to 3"),
        (spaces.Text(3, charset="ab"), "ax", "x has the character 'x': use only 'ab'"),
        (spaces.Text(3), 7, "x=7 is no text"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 1}, r"x has the keys \['b'\], and needs \['a'\]"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": 5}, "x.a=5 is outside"),
        (spaces.Dict({"a": spaces.Discrete(2)}), 5, "x=5 is no object with the keys a"),
        (spaces.Tuple([spaces.Discrete(2)]), [1, 1], "x has 2 items, and needs 1"),
        (spaces.Tuple([spaces.Discrete(2)]), [3], r"x\[0\]=3 is outside"),
        (spaces.Sequence(spaces.Discrete(2)), [0, 2], r"x\[1\]=2 is outside"),
        (spaces.Sequence(spaces.Discrete(2)), "01", "x='01' is no list"),
        (spaces.OneOf([spaces.Discrete(2)]), [1, 0], r"x\[0\]=1 is no option: give an integer from 0 to 0"),
        (spaces.OneOf([spaces.Discrete(2)]), [0, 9], r"x\[1\]=9 is outside"),
        (spaces.Graph(spaces.Discrete(2), None), {"edges": []}, "is no graph: give nodes, edges and edge_links"),
        (
            spaces.Graph(spaces.Discrete(2), spaces.Discrete(2)),
            {"nodes": [1, 1], "edges": [1], "edge_links": [[0, 2]]},
            "must be pairs of node numbers from 0 to 1",
        ),
    ],
)
def test_a_value_outside_of_its_space_is_refused_with_its_place(space: AnySpace, value: Any, says: str) -> None:
    with pytest.raises(SpaceValueError, match=says):
        require_within(space, read_value(space, value, "x"), "x")


def test_numbers_may_come_as_a_model_writes_them() -> None:
    assert read_value(spaces.Discrete(3), "2") == 2
    assert read_value(spaces.Discrete(3), 2.0) == 2
    assert read_value(spaces.Box(-2, 2, (1,)), 0.5).tolist() == [0.5]
    assert read_value(spaces.MultiBinary(2), [True, False]).tolist() == [1, 0]


def test_a_space_of_another_class_is_told() -> None:
    class Strange(gymnasium.Space[Any]):
        pass

    with pytest.raises(ConfigurationError, match=r"is a Strange, which is no space of Gymnasium's own.*Wrap"):
        json_of_space(spaces.Tuple([Strange()]))


@pytest.mark.parametrize(
    "described",
    [{}, {"type": "Cube"}, {"type": "Discrete"}, {"type": "Discrete", "n": 0}, {"type": "Dict", "spaces": 3}],
)
def test_json_that_describes_no_space_is_told(described: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="describes no"):
        space_of_json(described)
