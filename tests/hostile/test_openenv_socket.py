"""``/ws``, the OpenEnv wire: each kind of hostile message or frame ends the right thing with the right code.

A message that is wrong is answered, and the session goes on; a frame that breaks RFC 6455 ends the connection.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hostile_peer import BINARY, CLOSE, CONTINUATION, DROPPED, PING, TEXT, Peer, close_frame, frame
from hostile_process import LIMIT, ServerProcess

pytestmark = pytest.mark.usefixtures("well")

DEEP = 100_000
STATE = b'{"type":"state"}'


def step(value: bytes) -> bytes:
    return b'{"type":"step","data":%b}' % value


@dataclass(frozen=True)
class Message:
    """A message that is wrong, and what its answer says."""

    payload: bytes
    says: tuple[str, ...]
    opcode: int = TEXT


MESSAGES: dict[str, Message] = {
    "nothing": Message(b"", ("INVALID_JSON",)),
    "no JSON": Message(b"hello", ("INVALID_JSON", "Invalid JSON: ")),
    "half of it": Message(b'{"type":"step","data":{', ("INVALID_JSON",)),
    "an array": Message(b"[1]", ("VALIDATION_ERROR", "expected a JSON object, got an array")),
    "a number": Message(b"5", ("VALIDATION_ERROR", "got a number")),
    "null": Message(b"null", ("VALIDATION_ERROR", "got null")),
    "true": Message(b"true", ("VALIDATION_ERROR", "got a boolean")),
    "text": Message(b'"step"', ("VALIDATION_ERROR", "got a string")),
    "a type that is none": Message(b'{"type":["step"]}', ("UNKNOWN_TYPE",)),
    "a type of megabytes": Message(b'{"type":"%b"}' % (b"x" * 900_000), ("UNKNOWN_TYPE",)),
    "a binary message": Message(STATE, ("INVALID_JSON", "Binary messages are not part of this protocol"), BINARY),
    "random bytes": Message(bytes(range(256)) * 100, ("INVALID_JSON",), BINARY),
    "deep arrays": Message(step(b'{"text":' + b"[" * DEEP + b"]" * DEEP + b"}"), ("INVALID_JSON",)),
    "deep arrays without end": Message(b"[" * 900_000, ("INVALID_JSON",)),
    "deep objects": Message(b'{"data":' * DEEP + b"1" + b"}" * DEEP, ("INVALID_JSON",)),
    "deeper than its reader likes": Message(
        step(b'{"number":' + b"[" * 240 + b"]" * 240 + b"}"), ("VALIDATION_ERROR",)
    ),
    "deeper than its writer likes": Message(step(b'{"number":' + b"[" * 900 + b"]" * 900 + b"}"), ("INVALID_JSON",)),
    "deep, with half of a character": Message(
        step(b'{"number":' + b"[" * 900 + b'"\\ud800"' + b"]" * 900 + b"}"), ("INVALID_JSON",)
    ),
    "an integer of many digits": Message(step(b'{"number":' + b"9" * 900_000 + b"}"), ("INVALID_JSON",)),
    "an integer of some digits": Message(step(b'{"number":"x","repeat":' + b"9" * 4000 + b"}"), ("VALIDATION_ERROR",)),
    "a float of many digits": Message(step(b'{"number":0.' + b"3" * 900_000 + b"}"), ("VALIDATION_ERROR",)),
    "an exponent beyond reason": Message(step(b'{"number":1e999999999}'), ("VALIDATION_ERROR",)),
    "numbers that JSON has not": Message(step(b'{"number":NaN}'), ("VALIDATION_ERROR",)),
    "keys without number": Message(
        step(b"{" + b",".join(b'"%d":0' % index for index in range(60_000)) + b"}"),
        ("VALIDATION_ERROR", "60000 errors"),
    ),
    "keys of the class": Message(step(b'{"__class__":1,"__init__":2}'), ("VALIDATION_ERROR",)),
    "text of half a character": Message(step(b'{"number":"\\ud800"}'), ("VALIDATION_ERROR",)),
    "keys of half a character": Message(step(b'{"\\udfff":1}'), ("VALIDATION_ERROR",)),
    "a null character": Message(step(b'{"number":"\\u0000"}'), ("VALIDATION_ERROR",)),
    "a byte order mark": Message(b"\xef\xbb\xbf" + STATE, ("INVALID_JSON",)),
    "an action that is none": Message(step(b'"x"'), ("VALIDATION_ERROR",)),
    "a step within a step": Message(step(b'{"type":"step","data":{}}'), ("VALIDATION_ERROR",)),
    "more than asked": Message(b'{"type":"state","data":{}}', ("VALIDATION_ERROR",)),
    "no JSON-RPC": Message(b'{"type":"mcp","data":{}}', ('"code":-32600',)),
    "a control call for agents": Message(
        b'{"type":"mcp","data":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"step"}}}', ('"error":{',)
    ),
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_wrong_message_is_answered_and_the_session_goes_on(server: ServerProcess, message: Message) -> None:
    with Peer(server.port) as peer:
        peer.upgrade()
        peer.send(frame(message.payload, message.opcode))
        answer = peer.reply().payload.decode()
        json.loads(answer)
        for words in message.says:
            assert words in answer, answer[:300]
        assert len(answer) < 40 * LIMIT
        peer.send(frame(STATE))
        assert json.loads(peer.reply().payload)["type"] == "state"


TAKEN: dict[str, tuple[bytes, object]] = {
    "keys twice": (step(b'{"text":"a","text":"b"}'), "b"),
    "a giant text": (step(b'{"text":"' + b"x" * 900_000 + b'"}'), "x" * 900_000),
    "spaces": (step(b'{"text":"a"' + b" " * 900_000 + b"}"), "a"),
    "text of half a character": (step(b'{"text":"\\ud800"}'), "\ud800"),
    "every plane": (step('{"text":"\U0010ffff\u0000"}'.replace("\u0000", "\\u0000").encode()), "\U0010ffff\0"),
}


@pytest.mark.parametrize(("message", "text"), TAKEN.values(), ids=TAKEN)
def test_a_message_that_is_only_odd_is_taken(server: ServerProcess, message: bytes, text: object) -> None:
    with Peer(server.port) as peer:
        peer.upgrade()
        peer.send(frame(message))
        answer = json.loads(peer.reply().payload)
        assert answer["data"]["observation"]["text"] == text


@dataclass(frozen=True)
class Frames:
    """Frames that break a rule, and the codes that the connection may end with."""

    data: bytes
    codes: tuple[int, ...]


FRAMES: dict[str, Frames] = {
    "one byte too long": Frames(frame(b"x" * (LIMIT + 1)), (1009,)),
    "64 MB": Frames(frame(b"x" * 64_000_000), (1009, DROPPED)),
    "64 MB announced": Frames(frame(b"x", length=64_000_000), (1009,)),
    "more than there is": Frames(frame(b"x", length=2**63 - 1), (1009, 1002)),
    "a length with its first bit set": Frames(frame(b"x", length=2**64 - 1), (1002, 1009)),
    "text that is not UTF-8": Frames(frame(b"\xff\xfe"), (1007,)),
    "a character cut in the middle": Frames(frame(b'"\xe2\x82"'), (1007,)),
    "a character in its long form": Frames(frame(b"\xc0\xaf"), (1007,)),
    "half of a surrogate pair as bytes": Frames(frame(b"\xed\xa0\x80"), (1007,)),
    "wrong text in fragments": Frames(
        frame(b'"\xe2', fin=False) + frame(b"\x28", CONTINUATION, fin=False) + frame(b'"', CONTINUATION), (1007,)
    ),
    "no mask": Frames(frame(STATE, mask=False), (1002,)),
    "first reserved bit": Frames(frame(STATE, reserved=4), (1002,)),
    "second reserved bit": Frames(frame(STATE, reserved=2), (1002,)),
    "third reserved bit": Frames(frame(STATE, reserved=1), (1002,)),
    "a reserved kind of message": Frames(frame(STATE, 3), (1002,)),
    "a reserved kind of control": Frames(frame(STATE, 11), (1002,)),
    "a ping in fragments": Frames(frame(b"x", PING, fin=False), (1002,)),
    "a ping of 126 bytes": Frames(frame(b"x" * 126, PING), (1002,)),
    "a close in fragments": Frames(frame(b"\x03\xe8", CLOSE, fin=False), (1002,)),
    "the end of what never began": Frames(frame(STATE, CONTINUATION), (1002,)),
    "a message within a message": Frames(frame(b"{", fin=False) + frame(STATE), (1002,)),
    "fragments without end": Frames(
        frame(b"[", fin=False) + frame(b"[" * 9_000, CONTINUATION, fin=False) * 200, (1009, DROPPED)
    ),
    "empty fragments without end": Frames(
        frame(b"", fin=False) + frame(b"", CONTINUATION, fin=False) * 2_000_000, (1009, DROPPED)
    ),
    "a close of one byte": Frames(close_frame(b"\x03"), (1002,)),
    "a close with a code of nobody's": Frames(close_frame(b"\x00\x00"), (1002,)),
    "a close with a reserved code": Frames(close_frame(b"\x03\xee"), (1002,)),
    "a close whose reason is no text": Frames(close_frame(b"\x03\xe8\xff\xff"), (1007, 1002)),
    "a close, then more": Frames(close_frame(b"\x03\xe8") + frame(STATE) * 1000, (1000,)),
    "a close without words": Frames(close_frame(b""), (1000, 1005)),
    "HTTP in the socket": Frames(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", (1002,)),
}


@pytest.mark.parametrize("case", FRAMES.values(), ids=FRAMES)
def test_a_frame_that_breaks_a_rule_ends_the_connection(server: ServerProcess, case: Frames) -> None:
    if server.carrier == "uvicorn" and len(case.data) > LIMIT:
        pytest.skip("uvicorn's protocol waits ten seconds for a peer that it has closed")
    with Peer(server.port) as peer:
        peer.upgrade()
        peer.send(case.data)
        _, code = peer.end(timeout_s=120)  # two million frames are read in seconds, on idle cores
        assert code in case.codes


def test_a_message_in_fragments_with_pings_between_them_is_one_message(server: ServerProcess) -> None:
    with Peer(server.port) as peer:
        peer.upgrade()
        middle = b"".join(frame(bytes([byte]), CONTINUATION, fin=False) + frame(b"?", PING) for byte in STATE[1:-1])
        peer.send(frame(STATE[:1], fin=False) + middle + frame(STATE[-1:], CONTINUATION))
        assert json.loads(peer.reply().payload)["type"] == "state"
