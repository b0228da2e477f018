from __future__ import annotations

import contextlib
import datetime
import enum
import json
import math
import uuid
from typing import Any

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.wire.codec import decode, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


class Colour(str, enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Arraylike:
    def tolist(self) -> list[int]:
        return [1, 2]


@given(json_values)
def test_bytes_are_those_of_pydantics_encoder(value: Any) -> None:
    assert encode(value) == pydantic_core.to_json(value, inf_nan_mode="null")


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.timezone.utc),
        datetime.date(2024, 5, 1),
        datetime.timedelta(days=1, seconds=3),
        uuid.UUID(int=5),
        Colour.RED,
        Number.ONE,
        (1, 2),
        {1},
        b"abc",
        {1: "a", None: "b"},
        2**80,
    ],
)
def test_python_values_go_out_as_pydantic_writes_them(value: Any) -> None:
    assert encode({"v": value}) == pydantic_core.to_json({"v": value})


@given(json_values)
def test_what_is_encoded_is_decoded_unchanged_but_for_numbers_that_json_has_not(value: Any) -> None:
    assert decode(encode(value)) == _without_nan(value)


@given(st.integers())
def test_integers_of_any_size_arrive_exactly(number: int) -> None:
    assert decode(f'{{"seed":{number}}}') == {"seed": number}


@pytest.mark.parametrize("text", ["", "not json", "{", '{"a":}', "[1,]", "{'a':1}", '"\\x"', "nul"])
def test_wrong_json_is_told_in_the_words_of_pythons_parser(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as ours:
        decode(text)
    with pytest.raises(json.JSONDecodeError) as pythons:
        json.loads(text)
    assert str(ours.value) == str(pythons.value)


@given(st.text() | st.binary())
def test_any_text_is_decoded_or_refused_as_json(text: str | bytes) -> None:
    with contextlib.suppress(json.JSONDecodeError):
        decode(text)


@pytest.mark.parametrize("inner", ["1", '"\\ud800"', "9" * 30])
def test_what_is_read_can_be_written_again(inner: str) -> None:
    assert decode(encode(decode("[" * 250 + inner + "]" * 250))) == decode("[" * 250 + inner + "]" * 250)
    with pytest.raises(json.JSONDecodeError, match="Nested too deeply"):
        decode('{"a":' + "[" * 251 + inner + "]" * 251 + "}")


def test_endless_nesting_is_refused_as_json() -> None:
    with pytest.raises(json.JSONDecodeError, match="Nested too deeply"):
        decode("[" * 200_000)


def test_arrays_go_out_as_lists() -> None:
    assert encode({"a": Arraylike()}) == b'{"a":[1,2]}'


def test_numpy_values_go_out_as_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    value = {"a": numpy.arange(4).reshape(2, 2), "b": numpy.float32(0.5), "c": numpy.arange(4)[::2], "d": 2**70}
    assert decode(encode(value)) == {"a": [[0, 1], [2, 3]], "b": 0.5, "c": [0, 2], "d": 2**70}


def test_what_json_cannot_express_is_named() -> None:
    with pytest.raises(TypeError, match="object"):
        encode({"a": object()})


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    return value


def test_an_integer_too_long_to_convert_is_json_that_cannot_be_read() -> None:
    with pytest.raises(json.JSONDecodeError):
        decode("[" + "9" * 5000 + "]")
