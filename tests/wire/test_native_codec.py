"""The native codec: equal to JSON in what JSON can say, exact in what it cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import sys
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from pydantic import BaseModel

from openenv_trl.errors import ProtocolError
from openenv_trl.wire import codec
from openenv_trl.wire.native_codec import ARRAY, BIG_INTEGER, array_header, pack, unpack

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(json_values)
def test_what_json_says_comes_back_as_it_was(value: Any) -> None:
    assert unpack(pack(value)) == value


class Suit(enum.Enum):
    HEARTS = "hearts"


class Inner(BaseModel):
    when: datetime


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        Decimal("1.50"),
        UUID(int=7),
        Suit.HEARTS,
        Inner(when=datetime(2026, 1, 2)),
        {1: "a", None: "b"},
        {"a": {2: [{3: 4}]}},
        {5},
        (1, 2),
    ],
)
def test_other_values_are_told_as_json_tells_them(value: Any) -> None:
    assert unpack(pack(value)) == codec.decode(codec.encode(value))


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**300])
def test_integers_of_any_size_are_exact(value: int) -> None:
    assert unpack(pack([value])) == [value]


def test_bytes_travel_as_they_are() -> None:
    value = bytes(range(256))
    assert unpack(pack({"a": value, "b": bytearray(value), "c": memoryview(value)})) == dict.fromkeys("abc", value)


def test_not_a_number_and_the_infinities_are_kept() -> None:
    back = unpack(pack([math.nan, math.inf, -math.inf, np.float32("nan")]))
    assert math.isnan(back[0])
    assert back[1:3] == [math.inf, -math.inf]
    assert math.isnan(back[3])


@given(
    st_numpy.arrays(
        st_numpy.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc" and dtype.itemsize <= 16),
        st_numpy.array_shapes(min_dims=0, min_side=0),
    )
)
def test_arrays_come_back_with_shape_dtype_and_every_bit(array: Any) -> None:
    back = unpack(pack({"a": array}))["a"]
    assert back.shape == array.shape
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0,), (2, 0), (0, 2)])
def test_without_numpy_an_array_is_the_lists_that_json_has(
    dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    packed = pack([array])
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert unpack(packed) == [array.tolist()]


def test_an_array_that_is_not_contiguous_is_sent_in_order() -> None:
    array = np.arange(24).reshape(4, 6)[::2, ::3].T
    assert (unpack(pack(array)) == array).all()


def test_a_frame_of_atari_is_at_most_a_tenth_longer_than_its_memory() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (210, 160, 3), dtype=np.uint8)
    assert len(pack({"screen": frame})) <= 1.1 * frame.nbytes


@pytest.mark.parametrize("scalar", [np.int8(-3), np.uint64(2**64 - 1), np.float64(1.5), np.bool_(True)])
def test_scalars_of_numpy_are_numbers(scalar: Any) -> None:
    assert unpack(pack([scalar])) == [scalar.item()]


def test_strings_in_arrays_are_lists() -> None:
    assert unpack(pack(np.array(["a", "b"]))) == ["a", "b"]


def test_what_cannot_be_expressed_is_named() -> None:
    with pytest.raises(TypeError, match="object"):
        pack({"deep": [object()]})


def test_a_value_that_contains_itself_is_an_error_and_no_crash() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError):
        pack(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff" + b"x",
        b"\x91" * 100_000,
        ormsgpack.packb(ormsgpack.Ext(99, b"")),
        ormsgpack.packb(ormsgpack.Ext(ARRAY, b"")),
        ormsgpack.packb(ormsgpack.Ext(ARRAY, b"\x05|O8|2ab")),
        ormsgpack.packb(ormsgpack.Ext(ARRAY, b"\x07<f4|2,3ab")),
        ormsgpack.packb(ormsgpack.Ext(ARRAY, b"\x06<f4|-1abcd")),
        ormsgpack.packb(ormsgpack.Ext(ARRAY, b"\x05<f9|1" + b"x" * 9)),
        ormsgpack.packb(ormsgpack.Ext(BIG_INTEGER, b"12a")),
        ormsgpack.packb(ormsgpack.Ext(BIG_INTEGER, b"9" * 9000)),
        b"\x81\xc0\x01",
    ],
)
def test_bad_data_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(data)


def test_the_error_says_which_extension_is_wrong() -> None:
    with pytest.raises(ProtocolError, match="extension type 99"):
        unpack(ormsgpack.packb(ormsgpack.Ext(99, b"")))


@given(st.binary(max_size=200))
def test_no_bytes_make_anything_but_a_value_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        unpack(data)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_an_array_can_be_joined_of_packed_items(count: int) -> None:
    assert unpack(array_header(count) + pack(3) * count) == [3] * count


@dataclasses.dataclass
class Hand:
    raw: bytes = b"\xff"
    seen: Any = None


def test_what_lies_in_other_values_keeps_its_form() -> None:
    back = unpack(pack({"hand": Hand(seen=[{1: np.arange(2)}, {"b", "a"}, math.nan])}))["hand"]
    assert back["raw"] == b"\xff"
    assert back["seen"][0]["1"].tolist() == [0, 1]
    assert back["seen"][1] == ["a", "b"]
    assert math.isnan(back["seen"][2])


def test_masked_arrays_hide_what_they_mask() -> None:
    assert unpack(pack(np.ma.array([1, 2], mask=[False, True]))) == [1, None]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"board": [1, object()]}, r"result\.board\[1\]: an object of type object"),
        ({"board": {1: object()}}, r'result\.board\["1"\]: an object of type object'),
        ({"board": np.array([None])}, r"result\.board: a numpy array of objects"),
    ],
    ids=["list", "keys", "array"],
)
def test_what_cannot_be_expressed_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^{words}"):
        pack([16, 1, 2, value, None, False])
