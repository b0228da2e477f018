"""Messages as long as the default limit allows: taken, at a bounded price, while others are served."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hostile_peer import Peer, frame
from hostile_process import ServerProcess

MEGABYTES = 64
LONG = frame(b'{"type":"step","data":{"text":"' + b"x" * (MEGABYTES * 1_000_000) + b'"}}')
WRONG = frame(b'{"type":"step","data":{"number":"' + b"x" * (MEGABYTES * 1_000_000) + b'"}}')
NO_JSON = frame(b"x" * (MEGABYTES * 1_000_000))


@pytest.fixture(scope="module")
def roomy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("roomy") / "log", settings={})
    yield process
    process.stop()


def test_a_message_of_64_megabytes_comes_and_goes_while_others_are_served(roomy_server: ServerProcess) -> None:
    roomy_server.forget_peak()
    with Peer(roomy_server.port) as peer:
        peer.upgrade()
        peer.send(LONG)
        roomy_server.serves_others()
        answer = json.loads(peer.reply(60).payload)
        assert len(answer["data"]["observation"]["text"]) == MEGABYTES * 1_000_000
    # What came, its text, the observation, and what goes: each once.
    assert roomy_server.peak_mib() < roomy_server.rest_mib + 8 * MEGABYTES


@pytest.mark.parametrize(("data", "code"), [(WRONG, "VALIDATION_ERROR"), (NO_JSON, "INVALID_JSON")])
def test_a_wrong_message_of_64_megabytes_is_answered_shortly(
    roomy_server: ServerProcess, data: bytes, code: str
) -> None:
    roomy_server.forget_peak()
    with Peer(roomy_server.port) as peer:
        peer.upgrade()
        peer.send(data)
        answer = peer.reply(60).payload
        assert json.loads(answer)["data"]["code"] == code
        assert len(answer) < 100_000
    assert roomy_server.peak_mib() < roomy_server.rest_mib + 6 * MEGABYTES


def test_the_memory_of_long_messages_is_given_back(roomy_server: ServerProcess) -> None:
    for _ in range(3):
        with Peer(roomy_server.port) as peer:
            peer.upgrade()
            peer.send(LONG)
            peer.reply(60)
    roomy_server.serves_others()
    assert roomy_server.memory_mib() < roomy_server.rest_mib + MEGABYTES
