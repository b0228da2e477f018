"""The native wire: a message that is none of its own ends the connection with the right code, and nothing else."""

from __future__ import annotations

import contextlib
import struct
import time
from typing import Any

import ormsgpack
import pytest
from hostile_peer import BINARY, DROPPED, TEXT, Peer, close_frame, frame
from hostile_process import LIMIT, ServerProcess

from openenv_trl.wire import native_frames as kinds

pytestmark = pytest.mark.usefixtures("well")

GREETING = [kinds.GREETING, {"max_message_bytes": LIMIT}]


def message(*frames: Any) -> bytes:
    return frame(ormsgpack.packb(list(frames)), BINARY)


def ext(kind: int, payload: bytes) -> Any:
    return ormsgpack.Ext(kind, payload)


BEFORE_THE_GREETING: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "a request": (message([kinds.OPEN, 1, 1, {}]), (1002,)),
    "a greeting without a limit": (message([kinds.GREETING, {}]), (1002,)),
    "a greeting with a limit too small": (message([kinds.GREETING, {"max_message_bytes": 10}]), (1002,)),
    "a greeting with a limit that is none": (message([kinds.GREETING, {"max_message_bytes": float("nan")}]), (1002,)),
    "a greeting that is a number": (message(0), (1002,)),
    "a text message": (frame(b'{"type":"state"}'), (1003,)),
    "text that is not UTF-8": (frame(b"\xff"), (1007, 1003)),
}

AFTER_IT: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "a text message": (frame(b"[]", TEXT), (1003,)),
    "nothing at all": (frame(b"", BINARY), (1002,)),
    "no MessagePack": (frame(b"\xc1", BINARY), (1002,)),
    "half of it": (frame(ormsgpack.packb([GREETING])[:-3], BINARY), (1002,)),
    "a map": (frame(ormsgpack.packb({"a": 1}), BINARY), (1002,)),
    "JSON": (frame(b'{"type":"reset"}', BINARY), (1002,)),
    "a second greeting": (message(GREETING), (1002,)),
    "a kind of nobody's": (message([99, 1, 1]), (1002,)),
    "a server's kind": (message([kinds.OBSERVATION, 1, 1, {}, None, False]), (1002,)),
    "a kind that is true": (message([True, 1, 1, {}]), (1002,)),
    "a number below none": (message([kinds.OPEN, -1, 1, {}]), (1002,)),
    "a number beyond 32 bits": (message([kinds.OPEN, 2**32, 1, {}]), (1002,)),
    "a number beyond 64 bits": (message([kinds.OPEN, ext(2, b"9" * 30), 1, {}]), (1002,)),
    "a big number of a million digits": (message([kinds.OPEN, ext(2, b"9" * 900_000), 1, {}]), (1002,)),
    "a deadline that is none": (message([kinds.STEP, 1, 1, {}, float("nan")]), (1002,)),
    "a deadline below none": (message([kinds.STEP, 1, 1, {}, -1]), (1002,)),
    "too many items": (message([kinds.STEP, 1, 1, {}, None, 1]), (1002,)),
    "an action that is none": (message([kinds.STEP, 1, 1, "x"]), (1002,)),
    "an extension of nobody's": (message([kinds.STEP, 1, 1, {"a": ext(77, b"")}]), (1002,)),
    "an array without a header": (message([kinds.STEP, 1, 1, {"a": ext(1, b"")}]), (1002,)),
    "an array of objects": (message([kinds.STEP, 1, 1, {"a": ext(1, b"\x04|O|1" + b"\0" * 8)}]), (1002,)),
    "an array longer than its bytes": (
        message([kinds.STEP, 1, 1, {"a": ext(1, b"\x0e|u1|9999999999" + b"x")}]),
        (1002,),
    ),
    "an array of no size and endless shape": (
        message([kinds.STEP, 1, 1, {"a": ext(1, b"\x14<f8|9999999999999,0,9")}]),
        (1002,),
    ),
    "arrays in arrays without end": (frame(b"\x91" * 900_000, BINARY), (1002,)),
    "maps in maps without end": (frame(b"\x81\xa1a" * 300_000, BINARY), (1002,)),
    "an array of 2**32 items": (frame(b"\xdd\xff\xff\xff\xff", BINARY), (1002,)),
    "a map of 2**32 items": (frame(b"\xdf\xff\xff\xff\xff", BINARY), (1002,)),
    "bytes of 4 GB": (frame(b"\xc6\xff\xff\xff\xff", BINARY), (1002,)),
    "text of 4 GB": (frame(b"\xdb\xff\xff\xff\xff", BINARY), (1002,)),
    "an extension of 4 GB": (frame(b"\xc9\xff\xff\xff\xff\x01", BINARY), (1002,)),
    "text that is not UTF-8": (frame(b"\x91\x93\x02\x01\xa2\xff\xfe", BINARY), (1002,)),
    "keys that are no text": (frame(b"\x91\x94\x03\x01\x01\x81\x01\x02", BINARY), (1002,)),
    "a message too long": (frame(b"\x90" * (LIMIT + 1), BINARY), (1009,)),
}


@pytest.mark.parametrize(("data", "codes"), BEFORE_THE_GREETING.values(), ids=BEFORE_THE_GREETING)
def test_what_is_no_greeting_ends_the_connection(server: ServerProcess, data: bytes, codes: tuple[int, ...]) -> None:
    with Peer(server.port) as peer:
        assert b"openenv.native.v1" in peer.upgrade(subprotocol=kinds.SUBPROTOCOL)
        peer.send(data)
        assert peer.end()[1] in codes


@pytest.mark.parametrize(("data", "codes"), AFTER_IT.values(), ids=AFTER_IT)
def test_what_is_no_request_ends_the_connection(server: ServerProcess, data: bytes, codes: tuple[int, ...]) -> None:
    if server.carrier == "uvicorn" and len(data) > LIMIT:
        pytest.skip("uvicorn's protocol waits ten seconds for a peer that it has closed")
    with greeted(server) as peer:
        peer.send(message([kinds.OPEN, 1, 1, {}]))
        assert _frames(peer)[0][0] == kinds.OPENED
        peer.send(data)
        assert peer.end()[1] in codes


REFUSED: dict[str, list[Any]] = {
    "a session of nobody's": [kinds.STEP, 77, 2, {}],
    "a session that is open already": [kinds.OPEN, 1, 2, {}],
    "a call that is over": [kinds.OPEN, 1, 1, {}],
    "a token of another's": [kinds.RESUME, 5, 1, {"session_id": "x", "token": "y"}],
    "a token that is none": [kinds.RESUME, 5, 1, {"session_id": 5, "token": None}],
    "a token of half a character": [kinds.RESUME, 5, 1, {"session_id": "x", "token": "\x00"}],
    "an action that does not fit": [kinds.STEP, 1, 2, {"nowhere": 1}],
    "an action of bytes": [kinds.STEP, 1, 2, {"number": b"\xff\xfe"}],
    "an action with an array": [kinds.STEP, 1, 2, {"number": ext(1, b"\x07|u1|2,2" + b"\0\0\0\0")}],
    "an RPC that is none": [kinds.RPC, 1, 2, {"method": 5}],
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
def test_a_wrong_request_is_answered_and_the_session_goes_on(server: ServerProcess, request_: list[Any]) -> None:
    with greeted(server) as peer:
        peer.send(message([kinds.OPEN, 1, 1, {}]))
        assert _frames(peer)[0][0] == kinds.OPENED
        peer.send(message(request_))
        answer = _frames(peer)[0]
        assert answer[0] in (kinds.ERROR, kinds.RPC_REPLY), answer
        peer.send(message([kinds.STEP, 1, 9, {"text": "on"}]))
        assert _frames(peer)[0][3]["text"] == "on"


def test_a_step_sent_again_without_end_is_taken_once(own_server: ServerProcess) -> None:
    with greeted(own_server) as peer:
        peer.send(message([kinds.OPEN, 1, 1, {}]))
        _frames(peer)
        again = message(*[[kinds.STEP, 1, 2, {"text": "x" * 1000, "repeat": 100}]] * 5)
        peer.send_while_taken(again, times=20_000, patience_s=0.5)
        own_server.serves_others()


def test_sessions_without_end_on_one_connection_are_refused_one_by_one(own_server: ServerProcess) -> None:
    with greeted(own_server) as peer:
        opens = message(*[[kinds.OPEN, number, 1, {}] for number in range(2000)])
        peer.send(opens)
        answers: list[list[Any]] = []
        while len(answers) < 2000:
            answers += _frames(peer)
        assert sum(answer[0] == kinds.OPENED for answer in answers) == 64
        assert {answer[4] for answer in answers if answer[0] == kinds.ERROR} == {"CAPACITY_REACHED"}


def test_waiting_sessions_without_end_are_let_go_with_their_connection(own_server: ServerProcess) -> None:
    with greeted(own_server) as peer:
        for start in range(0, 20_000, 1000):
            peer.send(message(*[[kinds.OPEN, start + each, 1, {"wait_ms": 3_600_000}] for each in range(1000)]))
        time.sleep(0.5)
    # Other peers are served as soon as this one has gone: `well` sees to that.


def test_a_peer_that_goes_away_while_its_session_waits_to_be_resumed_keeps_no_slot_for_ever(
    own_server: ServerProcess,
) -> None:
    for _ in range(10):
        with greeted(own_server) as peer:
            peer.send(message([kinds.OPEN, 1, 1, {}], [kinds.OPEN, 2, 1, {}]))
            _frames(peer)
            peer.socket.setsockopt(6, 1, 1)
            with contextlib.suppress(OSError):
                peer.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # a reset, and no farewell


@contextlib.contextmanager
def greeted(server: ServerProcess) -> Any:
    with Peer(server.port) as peer:
        assert b"openenv.native.v1" in peer.upgrade(subprotocol=kinds.SUBPROTOCOL)
        assert ormsgpack.unpackb(peer.reply().payload)[0][0] == kinds.GREETING
        peer.send(message(GREETING))
        yield peer
        peer.send(close_frame(b"\x03\xe8"))  # a farewell, so that no session waits for a client to come back


def _frames(peer: Peer) -> list[list[Any]]:
    while True:
        reply = peer.reply()
        assert reply.opcode == BINARY, (reply, DROPPED)
        frames = ormsgpack.unpackb(reply.payload, ext_hook=lambda kind, payload: (kind, payload))
        if frames:
            return frames
