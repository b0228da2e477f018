"""The native wire's frames: the published vectors, and what is refused."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv_trl.errors import ProtocolError
from openenv_trl.wire import native_frames as frames
from openenv_trl.wire.faults import Fault
from openenv_trl.wire.native_codec import pack, unpack

HERE = Path(__file__).parent
VECTORS: list[dict[str, Any]] = json.loads((HERE / "native_vectors.json").read_text())


def test_the_published_vectors_are_what_this_package_sends() -> None:
    spec = importlib.util.spec_from_file_location("make_native_vectors", HERE / "make_native_vectors.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    made = [{"name": n, "sender": s, "hex": f.hex(), "frame": v} for n, s, f, v in maker.vectors()]
    assert json.dumps(made) == json.dumps(VECTORS)


def _extension(code: int, data: bytes) -> Any:
    if code == 2:
        return {"$integer": data.decode()}
    assert code == 1
    dtype, _, shape = data[1 : 1 + data[0]].decode().rpartition("|")
    elements = base64.b64encode(data[1 + data[0] :]).decode()
    return {"$array": [dtype, [int(part) for part in shape.split(",") if part], elements]}


def _described(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _described(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_described(item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and value != value:
        return {"$float": "nan"}
    return value


@pytest.mark.parametrize("vector", VECTORS, ids=[each["name"] for each in VECTORS])
def test_another_library_reads_the_vectors_by_the_specification_alone(vector: dict[str, Any]) -> None:
    read = msgpack.unpackb(bytes.fromhex(vector["hex"]), ext_hook=_extension)
    assert _described(read) == vector["frame"]


@pytest.mark.parametrize("vector", [each for each in VECTORS if each["frame"][0] != 0], ids=lambda each: each["name"])
def test_a_vector_is_taken_by_the_side_that_it_is_sent_to_and_by_no_other(vector: dict[str, Any]) -> None:
    frame = unpack(bytes.fromhex(vector["hex"]))
    mine, other = (frames.parse_request, frames.check_reply)
    if vector["sender"] == "server":
        mine, other = other, mine
    mine(frame)
    with pytest.raises(ProtocolError):
        other(frame)


def test_a_request_says_what_it_holds() -> None:
    request = frames.parse_request(unpack(frames.encode_request(frames.STEP, 9, 4, {"move": "hit"}, 1.5)))
    assert (request.kind, request.session, request.call) == (frames.STEP, 9, 4)
    assert request.body == {"move": "hit"}
    assert request.deadline_s == 1.5


@pytest.mark.parametrize(
    "frame",
    [
        None,
        [],
        {},
        [3],
        [3, 1],
        [3, 1, 1],
        [3, 1, 1, None],
        [3, 1, 1, []],
        [3, 1, 1, {}, 0],
        [3, 1, 1, {}, -1],
        [3, 1, 1, {}, True],
        [3, 1, 1, {}, "1"],
        [3, 1, 1, {}, None, None],
        [3, 1, 0, {}],
        [3, -1, 1, {}],
        [3, 2**32, 1, {}],
        [3, 1, 2**32, {}],
        [True, 1, 1, {}],
        ["3", 1, 1, {}],
        [3, "1", 1, {}],
        [3, 1, 1.0, {}],
        [4, 1, 1, {}],
        [6, 1, 1, {}],
        [9, 1, 1],
        [16, 1, 1, {}],
    ],
)
def test_what_is_no_request_is_refused(frame: Any) -> None:
    with pytest.raises(ProtocolError):
        frames.parse_request(frame)


@pytest.mark.parametrize("frame", [[0], [0, None], [0, {}], [0, {"max_message_bytes": 10}], [0, {}, 1]])
def test_a_greeting_without_a_limit_is_refused(frame: Any) -> None:
    with pytest.raises(ProtocolError):
        frames.parse_greeting(frame)


def test_a_message_that_is_no_array_is_refused() -> None:
    with pytest.raises(ProtocolError):
        frames.parse_message(pack({"a": 1}))


@given(st.lists(st.binary(min_size=1, max_size=200_000), max_size=6))
def test_joined_frames_come_apart_in_their_order(bodies: list[bytes]) -> None:
    packed = [pack(body) for body in bodies]
    messages = frames.join(packed)
    assert [frame for message in messages for frame in frames.parse_message(message)] == bodies
    longest = max(map(len, packed), default=0)
    assert all(len(message) <= max(256 * 1024, longest) + frames.HEADER_BYTES for message in messages)


def test_an_error_keeps_its_code_and_its_fields() -> None:
    fault = Fault("Invalid message", "VALIDATION_ERROR", {"errors": [{"loc": ["move"]}]})
    assert frames.parse_error(frames.check_reply(unpack(frames.encode_error(1, 2, fault)))) == fault
