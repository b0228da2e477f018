"""Numbers and arrays of numpy, however they lie in memory, have one form in JSON."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.wire.codec import decode, encode

TABLE: dict[str, tuple[Any, Any]] = {
    "bool": (numpy.bool_(True), True),
    "int": (numpy.int8(-3), -3),
    "uint64": (numpy.uint64(2**64 - 1), 2**64 - 1),
    "float16": (numpy.float16(0.1), 0.099975586),
    "float32": (numpy.float32(0.1), 0.1),
    "float64": (numpy.float64(0.1), 0.1),
    "longdouble": (numpy.longdouble(0.5), 0.5),
    "nan": (numpy.float32("nan"), None),
    "str": (numpy.str_("x"), "x"),
    "bytes": (numpy.bytes_(b"x"), "x"),
    "complex": (numpy.complex64(1j), "1j"),
    "datetime64": (numpy.datetime64("2024-05-01T12:00:00"), "2024-05-01T12:00:00"),
    "no datetime64": (numpy.datetime64("NaT"), None),
    "timedelta64": (numpy.timedelta64(5, "s"), "PT5S"),
    "timedelta64 in nanoseconds": (numpy.timedelta64(5000, "ns"), "PT0.000005S"),
    "no dimension": (numpy.array(5), 5),
    "no dimension, text": (numpy.array("x"), "x"),
    "no element": (numpy.zeros((0, 3)), []),
    "bools": (numpy.array([True, False]), [True, False]),
    "float16s": (numpy.array([0.5], "f2"), [0.5]),
    "longdoubles": (numpy.array([0.5], numpy.longdouble), [0.5]),
    "big-endian": (numpy.arange(3, dtype=">i4"), [0, 1, 2]),
    "big-endian, no dimension": (numpy.array(5, dtype=">i4"), 5),
    "big-endian float32s": (numpy.array([0.1], dtype=">f4"), [0.1]),
    "every second": (numpy.array([0.1, 0.2, 0.3], "f4")[::2], [0.1, 0.3]),
    "columns first": (numpy.asfortranarray(numpy.arange(6).reshape(2, 3)), [[0, 1, 2], [3, 4, 5]]),
    "matrix": (numpy.arange(4).reshape(2, 2).view(numpy.matrix), [[0, 1], [2, 3]]),
    "masked": (numpy.ma.array([1, 2], mask=[False, True]), [1, None]),
    "with nan and infinities": (numpy.array([numpy.nan, numpy.inf, 1.0]), [None, None, 1.0]),
    "texts": (numpy.array(["a", "bc"]), ["a", "bc"]),
    "byte strings": (numpy.array([b"a", b"bc"]), ["a", "bc"]),
    "times": (numpy.array(["2024-05-01", "NaT"], "datetime64[s]"), ["2024-05-01T00:00:00", None]),
    "spans": (numpy.array([5], "timedelta64[s]"), ["PT5S"]),
}


@pytest.mark.parametrize(("value", "form"), TABLE.values(), ids=TABLE)
def test_each_kind_of_array_has_its_form(value: Any, form: Any) -> None:
    assert decode(encode({"v": value})) == {"v": form}
    assert decode(encode([value, 2**70])) == [form, 2**70]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            numpy.array([1, "a", None], dtype=object),
            r"frames\[1\]: a numpy array of objects \(dtype=object\): send a list",
        ),
        (
            numpy.zeros(2, dtype=[("x", "i4")]),
            r"frames\[1\]: a structured numpy array .*: send one array for each field",
        ),
        (numpy.zeros(2, dtype=[("x", "i4")])[0], r"frames\[1\]: a structured numpy array .*"),
    ],
    ids=["objects", "records", "record"],
)
def test_arrays_of_no_numbers_are_refused_with_their_place(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^{words}"):
        encode({"frames": [1, value]})


def test_numbers_of_numpy_can_be_keys() -> None:
    assert decode(encode({numpy.int64(3): 1, numpy.str_("x"): 2})) == {"3": 1, "x": 2}


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from(["<f4", ">f4", "<f8", ">f8"]), st.booleans())
def test_an_array_of_floats_arrives_as_it_was(numbers: list[float], dtype: str, reverse: bool) -> None:
    array = numpy.array(numbers, dtype=dtype)[:: -1 if reverse else 1]
    arrived = numpy.array(decode(encode(array)), dtype=dtype)  # None becomes nan
    finite = numpy.isfinite(array)
    assert (arrived[finite] == array[finite]).all()
    assert numpy.isnan(arrived[~finite]).all()
