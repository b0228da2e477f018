"""Peers that send without reading, read without end, or do nothing at all: bounded in memory, unnoticed by others."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Callable

import pytest
from hostile_peer import BINARY, CONTINUATION, PING, TEXT, Peer, frame
from hostile_process import ServerProcess

pytestmark = pytest.mark.usefixtures("well")

STATE = frame(b'{"type":"state"}')
LONG_REPLY = frame(b'{"type":"step","data":{"text":"' + b"x" * 10_000 + b'","repeat":90}}')
PATIENCE_S = 0.5

FLOODS: dict[str, tuple[bytes, int]] = {
    "requests": (STATE * 1000, 2000),
    "requests with long replies": (LONG_REPLY, 3000),
    "what is no JSON": (frame(b"x" * 100) * 500, 2000),
    "binary messages": (frame(b"x" * 10_000, BINARY) * 10, 2000),
    "pings": (frame(b"x" * 125, PING) * 1000, 2000),
    "long messages": (frame(b'{"type":"step","data":{"text":"' + b"x" * 900_000 + b'"}}'), 200),
}


@pytest.mark.parametrize(("data", "times"), FLOODS.values(), ids=FLOODS)
def test_a_peer_that_sends_without_reading_is_not_read_without_end(
    own_server: ServerProcess, data: bytes, times: int
) -> None:
    with Peer(own_server.port, receive_buffer=4096) as peer:
        peer.upgrade()
        peer.send_while_taken(data, times=times, patience_s=PATIENCE_S)
        own_server.serves_others()


def test_a_peer_that_never_reads_is_ended(own_server: ServerProcess) -> None:
    with Peer(own_server.port, receive_buffer=4096) as peer:
        peer.upgrade()
        peer.send_while_taken(LONG_REPLY, times=3000, patience_s=PATIENCE_S)
        _until(lambda: own_server.active_sessions() == 0)


def test_a_peer_that_answers_no_pings_is_ended(own_server: ServerProcess) -> None:
    with Peer(own_server.port) as peer:
        peer.upgrade()
        began = time.monotonic()  # before the last sign of life, which the server counts from
        peer.send(STATE)
        assert peer.reply().opcode == TEXT
        peer.end(timeout_s=60)
        assert time.monotonic() - began > 1


def test_a_peer_that_answers_pings_is_kept(own_server: ServerProcess) -> None:
    with Peer(own_server.port) as peer:
        peer.upgrade()
        began = time.monotonic()
        for reply in peer.replies():
            if reply.opcode == PING:
                peer.send(frame(reply.payload, 10))
                if time.monotonic() - began > 4:
                    break
        peer.send(STATE)
        assert peer.reply().opcode == TEXT


def test_a_peer_that_goes_away_in_the_middle_of_a_step_leaves_its_slot(own_server: ServerProcess) -> None:
    for _ in range(20):
        with Peer(own_server.port) as peer:
            peer.upgrade()
            peer.send(frame(b'{"type":"step","data":{"wait_s":30}}'))
    _until(lambda: own_server.active_sessions() == 0)


def test_a_frame_byte_by_byte_holds_up_nobody(own_server: ServerProcess) -> None:
    peers: list[Peer] = []
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            peers.append(peer := stack.enter_context(Peer(own_server.port)))
            peer.upgrade()
        for byte in STATE[:-1]:
            for peer in peers:
                peer.send(bytes([byte]))
        own_server.serves_others()
        for peer in peers:
            peer.send(STATE[-1:])
        assert [peer.reply().opcode for peer in peers] == [TEXT] * 40


def test_half_of_a_long_frame_on_every_slot_is_bounded_in_memory(own_server: ServerProcess) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            peer = stack.enter_context(Peer(own_server.port))
            peer.upgrade()
            peer.send(frame(b"x" * 500, length=900_000))
        own_server.serves_others()


def test_fragments_on_every_slot_are_bounded_in_memory(own_server: ServerProcess) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            peer = stack.enter_context(Peer(own_server.port))
            peer.upgrade()
            peer.send(frame(b"[", fin=False) + frame(b"[" * 400_000, CONTINUATION, fin=False))
        own_server.serves_others()


def test_thousands_of_idle_connections_hold_up_nobody_and_are_ended(own_server: ServerProcess) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", own_server.port), timeout=20))
            for _ in range(min(3000, most // 2 - 200))
        ]
        own_server.serves_others()
        for each in (idle[0], idle[-1]):
            assert each.recv(65_536) == b"" or each.recv(65_536) == b""


def test_thousands_of_handshakes_beyond_the_slots_are_each_refused(own_server: ServerProcess) -> None:
    with contextlib.ExitStack() as stack:
        holders: list[Peer] = []
        for _ in range(64):
            holders.append(holder := stack.enter_context(Peer(own_server.port)))
            holder.upgrade()  # at once: a connection that asks for nothing is dropped after two seconds
            holder.send(STATE)
            assert holder.reply().opcode == TEXT
        for number in range(500):
            for holder in holders if number % 25 == 0 else ():  # a sign of life: the server asks for one each second
                holder.send(STATE)
                assert holder.reply().opcode == TEXT
            with Peer(own_server.port) as late:
                late.upgrade()
                replies, code = late.end()
                assert b"CAPACITY_REACHED" in replies[0].payload
                assert code == 1000


def _until(true: Callable[[], bool], within_s: float = 60) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "not within its time"
        time.sleep(0.02)
