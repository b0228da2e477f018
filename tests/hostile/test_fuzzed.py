"""Whatever hypothesis and schemathesis think of: the server answers or closes, and never fails."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import httpx
import ormsgpack
import pytest
import schemathesis
from hostile_peer import BINARY, CLOSE, CONTINUATION, DROPPED, PING, TEXT, Peer, frame
from hostile_process import ServerProcess
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from openenv_trl.wire import native_frames as kinds

pytestmark = pytest.mark.usefixtures("well")

BOUNDED = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
CLIENT = httpx.Client(timeout=20, trust_env=False)
CODES = {1000, 1002, 1003, 1005, 1007, 1009, DROPPED}

frames = st.builds(
    frame,
    st.binary(max_size=200) | st.sampled_from([b'{"type":"state"}', b'{"type":"close"}', b"\x03\xe8", b""]),
    st.sampled_from([TEXT, BINARY, CONTINUATION, PING, CLOSE]) | st.integers(0, 15),
    fin=st.booleans() | st.just(True),
    reserved=st.just(0) | st.integers(0, 7),
    mask=st.just(True) | st.booleans(),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
requests = st.fixed_dictionaries(
    {"type": st.sampled_from(["reset", "step", "state", "mcp", "observation"]) | json_values},
    optional={"data": json_values | st.fixed_dictionaries({}, optional={"text": json_values, "number": json_values})},
)
small = st.integers(-1, 3) | st.integers() | json_values
native = st.lists(
    st.lists(small, max_size=6)
    | st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(1, 5), st.just({}) | json_values).map(list),
    max_size=5,
)


@BOUNDED
@given(sent=st.lists(frames, min_size=1, max_size=8))
def test_any_frames_are_answered_or_end_the_connection(own_server: ServerProcess, sent: list[bytes]) -> None:
    with Peer(own_server.port) as peer:
        peer.upgrade()
        peer.send(b"".join(sent) + frame(b"\x03\xe8", CLOSE))
        assert peer.end()[1] in CODES


@BOUNDED
@given(data=st.binary(min_size=1, max_size=300))
def test_any_bytes_in_a_socket_end_the_connection(own_server: ServerProcess, data: bytes) -> None:
    with Peer(own_server.port) as peer:
        peer.upgrade()
        peer.send(data)
        peer.socket.shutdown(1)
        assert peer.end()[1] in CODES


@BOUNDED
@given(data=st.binary(min_size=1, max_size=300))
def test_any_bytes_for_a_request_are_refused(own_server: ServerProcess, data: bytes) -> None:
    with Peer(own_server.port) as peer:
        peer.send(data + b"\r\n\r\n")
        peer.socket.shutdown(1)
        answer = peer.rest()
        assert not answer or answer.startswith(b"HTTP/1.1 4")


@BOUNDED
@given(sent=st.lists(requests, min_size=1, max_size=5), path=st.sampled_from(["/ws", "/mcp"]))
def test_any_json_has_one_answer_a_message(own_server: ServerProcess, sent: list[dict[str, Any]], path: str) -> None:
    with Peer(own_server.port) as peer:
        peer.upgrade(path)
        for each in sent:
            peer.send(frame(json.dumps(each).encode()))
            answer = json.loads(peer.reply().payload)
            assert "type" in answer or "jsonrpc" in answer
            assert "its log tells why" not in str(answer), each


@BOUNDED
@given(sent=st.lists(native, min_size=1, max_size=5))
def test_any_messagepack_is_answered_or_ends_the_connection(own_server: ServerProcess, sent: list[list[Any]]) -> None:
    with Peer(own_server.port) as peer:
        peer.upgrade(subprotocol=kinds.SUBPROTOCOL)
        peer.send(
            frame(ormsgpack.packb([[kinds.GREETING, {"max_message_bytes": 100_000}], [kinds.OPEN, 1, 1]]), BINARY)
        )
        options = ormsgpack.OPT_PASSTHROUGH_BIG_INT | ormsgpack.OPT_REPLACE_SURROGATES
        for each in sent:
            peer.send(frame(ormsgpack.packb(each, lambda _: None, options), BINARY))
        peer.send(frame(b"\x03\xe8", CLOSE))
        replies, code = peer.end()
        assert code in CODES
        assert all("its log tells why" not in str(reply.payload) for reply in replies)


def test_every_http_route_answers_whatever_its_schema_allows_or_forbids(own_server: ServerProcess) -> None:
    url = f"http://127.0.0.1:{own_server.port}"
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    seen: set[str] = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        seen.add(operation.path)
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @settings(parent=BOUNDED, max_examples=8)
            @given(case=operation.as_strategy(generation_mode=mode))
            def call(case: Any) -> None:
                response = case.call(base_url=url)
                assert response.status_code < 500 or response.status_code == 501, response.text[:300]

            with contextlib.suppress(Unsatisfiable):  # a route that takes nothing cannot be given anything wrong
                call()
    assert {"/health", "/schema", "/reset", "/step", "/state"} <= seen


@BOUNDED
@given(
    body=json_values | requests | st.binary(max_size=100), kind=st.sampled_from(["application/json", "text/plain", ""])
)
def test_any_body_for_mcp_is_answered(own_server: ServerProcess, body: Any, kind: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"http://127.0.0.1:{own_server.port}/mcp"
    response = CLIENT.post(url, content=content, headers={"Content-Type": kind} if kind else {})
    assert response.status_code < 500, response.text[:300]
