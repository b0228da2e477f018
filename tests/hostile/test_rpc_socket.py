"""``/mcp`` as a socket: what is no JSON-RPC is answered, and the session goes on."""

from __future__ import annotations

import json

import pytest
from hostile_peer import BINARY, TEXT, Peer, frame
from hostile_process import ServerProcess

pytestmark = pytest.mark.usefixtures("well")

DEEP = 100_000


def call(params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params


MESSAGES: dict[str, tuple[bytes, int, int]] = {
    "nothing": (b"", TEXT, -32700),
    "no JSON": (b"hello", TEXT, -32700),
    "deep arrays": (b"[" * DEEP, TEXT, -32700),
    "an integer of many digits": (b'{"id":' + b"9" * 900_000 + b"}", TEXT, -32700),
    "a binary message": (b"{}", BINARY, -32700),
    "an array": (b"[]", TEXT, -32600),
    "null": (b"null", TEXT, -32600),
    "an empty object": (b"{}", TEXT, -32600),
    "an id that is an object": (b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}', TEXT, -32600),
    "an id of half a character": (b'{"jsonrpc":"2.0","id":"\\ud800","method":5}', TEXT, -32600),
    "keys without number": (b"{" + b",".join(b'"%d":0' % n for n in range(60_000)) + b"}", TEXT, -32600),
    "a method of nobody's": (b'{"jsonrpc":"2.0","id":1,"method":"hack"}', TEXT, -32601),
    "a method of megabytes": (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 900_000 + b'"}', TEXT, -32601),
    "no tool": (call(b"{}"), TEXT, -32602),
    "a tool that is a number": (call(b'{"name":5}'), TEXT, -32602),
    "arguments that are none": (call(b'{"name":"say","arguments":[]}'), TEXT, -32602),
    "the trainer's step": (call(b'{"name":"step","arguments":{}}'), TEXT, -32603),
    "a method of the class": (call(b'{"name":"__init__","arguments":{}}'), TEXT, -32603),
    "wrong arguments": (call(b'{"name":"say","arguments":{"text":[[]]}}'), TEXT, -32603),
    "arguments of the class": (call(b'{"name":"say","arguments":{"text":"","self":1}}'), TEXT, -32603),
}


@pytest.mark.parametrize(("payload", "opcode", "code"), MESSAGES.values(), ids=MESSAGES)
def test_a_wrong_request_is_answered_and_the_session_goes_on(
    server: ServerProcess, payload: bytes, opcode: int, code: int
) -> None:
    with Peer(server.port) as peer:
        peer.upgrade("/mcp")
        peer.send(frame(payload, opcode))
        answer = json.loads(peer.reply().payload)
        assert answer["jsonrpc"] == "2.0"
        assert answer["error"]["code"] == code, answer
        peer.send(frame(call(b'{"name":"say","arguments":{"text":"on"}}')))
        assert "on" in json.dumps(json.loads(peer.reply().payload)["result"])
