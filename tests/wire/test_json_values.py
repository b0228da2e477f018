"""Each kind of Python value has one form in JSON, and what has none is refused with its place.

The table is the one of docs/serialisation.md.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import os
import pathlib
import subprocess
import sys
import types
import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from openenv_trl.wire.byte_text import MARK, bytes_of_text, text_of_bytes
from openenv_trl.wire.codec import decode, encode


class Suit(str, enum.Enum):
    SPADES = "spades"


class Rank(enum.IntEnum):
    ACE = 1


class Pair(enum.Enum):
    BOTH = (1, 2)


@dataclasses.dataclass
class Hand:
    cards: Any
    raw: bytes = b"\xff"


@dataclasses.dataclass(frozen=True)
class Place:
    row: int


class Card(BaseModel):
    rank: int = 1
    raw: bytes = b"\xff"


class Point(NamedTuple):
    x: int
    y: int


class Metres(float):
    pass


class Arraylike:
    def tolist(self) -> list[int]:
        return [1, 2]


UTC = datetime.timezone.utc
RAW = MARK + "/w=="

TABLE: dict[str, tuple[Any, Any]] = {
    "bytes that are text": (b"abc", "abc"),
    "bytes that are none": (b"\xff", RAW),
    "bytearray": (bytearray(b"\xff"), RAW),
    "memoryview": (memoryview(b"a.b.c")[::2], "abc"),
    "datetime": (datetime.datetime(2024, 5, 1, 12, tzinfo=UTC), "2024-05-01T12:00:00Z"),
    "naive datetime": (datetime.datetime(2024, 5, 1, 12, 0, 0, 5), "2024-05-01T12:00:00.000005"),
    "date": (datetime.date(2024, 5, 1), "2024-05-01"),
    "time": (datetime.time(12), "12:00:00"),
    "timedelta": (datetime.timedelta(days=1, seconds=3), "P1DT3S"),
    "decimal": (decimal.Decimal("1.10"), "1.10"),
    "uuid": (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    "path": (pathlib.PurePosixPath("a/b"), "a/b"),
    "address": (ipaddress.ip_network("10.0.0.0/8"), "10.0.0.0/8"),
    "enum of text": (Suit.SPADES, "spades"),
    "enum of integers": (Rank.ACE, 1),
    "enum of tuples": (Pair.BOTH, [1, 2]),
    "model": (Card(), {"rank": 1, "raw": RAW}),
    "dataclass": (Hand([Card()]), {"cards": [{"rank": 1, "raw": RAW}], "raw": RAW}),
    "tuple": ((1, (2,)), [1, [2]]),
    "named tuple": (Point(1, 2), [1, 2]),
    "deque": (collections.deque([1]), [1]),
    "range": (range(3), [0, 1, 2]),
    "generator": ((each for each in "ab"), ["a", "b"]),
    "mapping": (types.MappingProxyType({"a": 1}), {"a": 1}),
    "counter": (collections.Counter("aab"), {"a": 2, "b": 1}),
    "dict view": ({"a": 1}.keys(), ["a"]),
    "set": ({3, 1, 2}, [1, 2, 3]),
    "set of texts": ({"b", "a"}, ["a", "b"]),
    "set of this and that": ({"a", 1, (1, 2), None, Suit.SPADES}, [None, "spades", 1, "a", [1, 2]]),
    "set of sets": ({frozenset({2, 3}), frozenset({1})}, [[1], [2, 3]]),
    "nan": (float("nan"), None),
    "infinity": (-float("inf"), None),
    "subclass of float": (Metres(1.5), 1.5),
    "huge integer": (-(2**200), -(2**200)),
    "secret": (SecretStr("password"), "**********"),
    "whatever has tolist": (Arraylike(), [1, 2]),
    "keys that are numbers": ({1: "a", 1.5: "b", Rank.ACE + 1: "c"}, {"1": "a", "1.5": "b", "2": "c"}),
    "keys that are enums": ({Suit.SPADES: 1, Rank.ACE: 2, Pair.BOTH: 3}, {"spades": 1, "1": 2, "1,2": 3}),
    "keys of other kinds": (
        {None: 1, True: 2, datetime.date(2024, 5, 1): 3, b"a": 4, b"\xff": 5, (1, 2): 6, uuid.UUID(int=5): 7, 2**70: 8},
        {
            "None": 1,
            "true": 2,
            "2024-05-01": 3,
            "a": 4,
            RAW: 5,
            "1,2": 6,
            "00000000-0000-0000-0000-000000000005": 7,
            "1180591620717411303424": 8,
        },
    ),
    "lone surrogates": ({"\ud800": ["\udfff"]}, {"\ud800": ["\udfff"]}),
}


@pytest.mark.parametrize(("value", "form"), TABLE.values(), ids=TABLE)
def test_each_kind_of_value_has_its_form(value: Any, form: Any) -> None:
    # Beside a value that only the slow writer takes, the same.
    both = [value, 2**70] if not isinstance(value, types.GeneratorType) else [list(value), 2**70]
    assert decode(encode(both))[0] == form
    if not isinstance(value, types.GeneratorType):
        assert decode(encode({"v": value})) == {"v": form}
        json.loads(encode(value), parse_constant=pytest.fail)


def test_a_generator_is_written_as_a_list() -> None:
    assert encode({"v": (each for each in (1, 2))}) == b'{"v":[1,2]}'


@given(st.binary() | st.text().map(str.encode) | st.binary().map(MARK.encode().__add__))
@example(b"\xff")
@example(MARK.encode())
@example(MARK.encode() + b"/w==")
def test_bytes_of_any_kind_come_back(value: bytes) -> None:
    sent = decode(encode({"v": value}))["v"]
    assert bytes_of_text(sent) == value
    assert bytes_of_text(sent.encode()) == value  # as a field of type bytes holds it


@given(st.text())
def test_text_that_is_no_bytes_is_not_changed(text: str) -> None:
    if not text.startswith(MARK):
        assert text_of_bytes(text.encode()) == text


def test_a_mark_without_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="is not base64"):
        bytes_of_text(MARK + "!")


REFUSED: dict[str, tuple[Any, str]] = {
    "object": ({"a": {"b c": [1, object()]}}, r'a\["b c"\]\[1\]: an object of type object: send numbers'),
    "class": ({"kind": Card}, r"kind: an object of type .*ModelMetaclass"),
    "function": ({"a": [len]}, r"a\[0\]: an object of type builtin_function_or_method"),
    "key": ({"a": {Place: 1}}, r"a: a key of type type, which is no text in JSON"),
    "equal keys": ({"a": {1: 1, "1": 2}}, r'a: two keys of this dict are both "1" in JSON'),
    "endless integer": ({"a": [10**5000]}, r"a\[0\]: an integer of more than 4300 digits"),
    "beside a huge integer": ({"a": 2**70, "b": {"c": object()}}, r"b\.c: an object of type object"),
    "in a dataclass": ({"hand": Hand([object()])}, r"hand\.cards\[0\]: an object of type object"),
    "in a set": ({"a": {Place(1), object}}, r"a\[\d\]: an object of type type"),
}


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_form_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^{words}"):
        encode(value)


def test_the_name_of_the_whole_stands_before_the_place() -> None:
    with pytest.raises(TypeError, match=r"^state\.a\[0\]: an object of type object"):
        encode({"a": [object()]}, at="state")


def test_what_holds_itself_is_refused_with_its_place() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    with pytest.raises(TypeError, match=r"^a\[1\]: it holds itself"):
        encode({"a": circle})


def test_endless_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(2000):
        value = [value]
    with pytest.raises(TypeError, match="nested more than 250 levels deep"):
        encode({"a": value})


def test_nesting_that_every_peer_reads_is_written() -> None:
    value: Any = 2**70
    for _ in range(100):
        value = {"a": [value]}
    assert decode(encode(value)) == value


def test_sets_are_written_alike_in_every_process() -> None:
    code = (
        "from openenv_trl.wire.codec import encode; import sys; "
        "sys.stdout.buffer.write(encode([set('qwertyuiop'), {('a', 1), 'b', 2, None, frozenset('xyz')}]))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_no_library_is_imported_for_its_values() -> None:
    code = (
        "import sys; from openenv_trl.wire.codec import encode; encode({'a': b'x', 'b': {1: {2}}}); "
        "sys.exit(any(name in sys.modules for name in ('numpy', 'torch', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_picture_is_told_what_to_send_instead() -> None:
    image = pytest.importorskip("PIL.Image")
    with pytest.raises(TypeError, match=r"^frame: an image \(PIL.Image.Image\): send its bytes .* numpy.asarray"):
        encode({"frame": image.new("L", (2, 2))})


def test_tensors_go_out_as_lists() -> None:
    torch = pytest.importorskip("torch")
    value = {
        "a": torch.arange(4).reshape(2, 2),
        "b": torch.tensor(0.5, requires_grad=True),
        "c": torch.tensor([float("nan"), 1.0]),
        "d": torch.ones(1, dtype=torch.bfloat16),
    }
    assert decode(encode(value)) == {"a": [[0, 1], [2, 3]], "b": 0.5, "c": [None, 1.0], "d": [1.0]}
