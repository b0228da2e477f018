"""The native wire as its specification tells it, by a client that knows nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import msgpack
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from openenv_trl.server import departed, session_life

pytestmark = pytest.mark.anyio


async def test_an_episode(serve: Callable[..., str], peer: Callable[..., Any]) -> None:
    wire = await peer(serve())
    opened = await wire.open()
    assert set(opened) == {"session_id", "token"}
    assert await wire.ask(2, 1, 2, {"seed": 7}) == [
        16, 1, 2, {"metadata": {}, "text": "seed 7", "count": 0, "screen": None, "data": b""}, None, False,
    ]  # fmt: skip
    answer = await wire.ask(3, 1, 3, {"text": "hit"}, 5000)
    assert answer[:3] == [16, 1, 3]
    assert answer[3]["text"] == "hit"
    assert answer[3]["metadata"] == {"k": 1}
    assert answer[4:] == [0.5, False]
    assert await wire.ask(4, 1, 4) == [17, 1, 4, {"episode_id": None, "step_count": 1}]
    listed = await wire.ask(5, 1, 5, {"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {}})
    assert listed[3]["result"]["tools"][0]["name"] == "double"
    assert await wire.ask(6, 1, 6) == [20, 1, 6]


async def test_many_sessions_share_a_connection_and_do_not_wait_for_each_other(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(serve())
    for session in (1, 2, 3):
        await wire.open(session)
    await wire.send([3, 1, 2, {"waits": True}])
    assert await asyncio.to_thread(tables[0].waiting.wait, 20)
    assert (await wire.ask(3, 2, 2, {"text": "b"}))[:3] == [16, 2, 2]
    assert (await wire.ask(3, 3, 2, {"text": "c"}))[:3] == [16, 3, 2]
    tables[0].let_go()
    assert (await wire.receive())[:3] == [16, 1, 2]


async def test_frames_of_one_message_are_all_answered(serve: Callable[..., str], peer: Callable[..., Any]) -> None:
    wire = await peer(serve())
    await wire.send([1, 1, 1, {}], [1, 2, 1, {}])
    assert sorted([(await wire.receive())[:3], (await wire.receive())[:3]]) == [[19, 1, 1], [19, 2, 1]]
    await wire.send(*([3, session, 2, {"text": str(session)}] for session in (1, 2)))
    assert {(await wire.receive())[3]["text"] for _ in range(2)} == {"1", "2"}


async def test_bytes_arrays_and_rewards_that_are_no_number_arrive_as_they_are(
    serve: Callable[..., str], peer: Callable[..., Any]
) -> None:
    wire = await peer(serve())
    await wire.open()
    answer = await wire.ask(3, 1, 2, {"screen": True, "data": bytes(range(256))})
    assert answer[3]["data"] == bytes(range(256))
    screen = answer[3]["screen"]
    assert isinstance(screen, msgpack.ExtType)
    assert screen.code == 1
    assert screen.data.endswith(bytes([7]) * 100_800)
    assert len(screen.data) == 100_814


async def test_an_error_says_whose_it_is_and_the_session_goes_on(
    serve: Callable[..., str], peer: Callable[..., Any]
) -> None:
    wire = await peer(serve())
    await wire.open()
    wrong = await wire.ask(3, 1, 2, {"nonsense": 1})
    assert (wrong[0], wrong[4]) == (21, "VALIDATION_ERROR")
    assert wrong[5]["errors"][0]["loc"] == ["nonsense"]
    raised = await wire.ask(3, 1, 3, {"raises": True})
    assert (raised[0], raised[3], raised[4]) == (21, "the table fell over", "EXECUTION_ERROR")
    assert (await wire.ask(3, 1, 4, {"text": "on"}))[0] == 16


async def test_a_full_server_refuses_at_once_or_lets_a_client_wait(
    serve: Callable[..., str], peer: Callable[..., Any]
) -> None:
    wire = await peer(serve(most=1))
    await wire.open()
    refused = await wire.ask(1, 2, 1, {})
    assert (refused[0], refused[4], refused[5]["max_sessions"]) == (21, "CAPACITY_REACHED", 1)
    await wire.send([1, 3, 1, {"wait_ms": 20_000}])
    await wire.send([6, 1, 2])
    assert sorted([(await wire.receive())[0], (await wire.receive())[0]]) == [19, 20]


async def test_a_call_that_was_carried_out_is_not_carried_out_again(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(serve())
    await wire.open()
    first = await wire.ask(3, 1, 2, {"text": "once"})
    again = await wire.ask(3, 1, 2, {"text": "once"})
    assert first == again
    assert tables[0].steps == 1
    old = await wire.ask(3, 1, 1, {"text": "old"})
    assert (old[0], old[4]) == (21, "SESSION_ERROR")
    assert tables[0].steps == 1


async def test_a_second_call_of_a_busy_session_is_refused(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(serve())
    await wire.open()
    await wire.send([3, 1, 2, {"waits": True}])
    assert await asyncio.to_thread(tables[0].waiting.wait, 20)
    assert "still runs" in (await wire.ask(3, 1, 3, {}))[3]
    tables[0].let_go()
    assert (await wire.receive())[:3] == [16, 1, 2]


async def test_a_session_survives_its_connection(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    url = serve()
    before = await peer(url)
    opened = await before.open(5)
    await before.send([3, 5, 2, {"waits": True}])
    assert await asyncio.to_thread(tables[0].waiting.wait, 20)
    before.connection.transport.abort()

    after = await peer(url)
    assert await after.ask(8, 5, 2, {**opened}) == [19, 5, 2, opened]
    await after.send([3, 5, 2, {"waits": True}])
    tables[0].let_go()
    assert (await after.receive())[:3] == [16, 5, 2]
    assert tables[0].steps == 1
    assert (await after.ask(3, 5, 3, {"text": "next"}))[3]["count"] == 2


async def test_a_reply_that_was_lost_with_its_connection_is_sent_again(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    url = serve()
    before = await peer(url)
    opened = await before.open(5)
    await before.ask(3, 5, 2, {"text": "heard"})
    before.connection.transport.abort()
    after = await peer(url)
    await after.ask(8, 5, 2, {**opened})
    assert (await after.ask(3, 5, 2, {"text": "heard"}))[3]["text"] == "heard"
    assert tables[0].steps == 1


@pytest.mark.parametrize("wrong", [{"token": "guessed"}, {"session_id": "other"}, {"token": 7}])
async def test_a_session_is_taken_up_only_by_who_knows_its_token(
    serve: Callable[..., str], peer: Callable[..., Any], wrong: dict[str, Any]
) -> None:
    url = serve()
    before = await peer(url)
    opened = await before.open(5)
    before.connection.transport.abort()
    after = await peer(url)
    answer = await after.ask(8, 5, 1, {**opened, **wrong})
    assert (answer[0], answer[4]) == (21, "SESSION_ERROR")
    other_number = await after.ask(8, 6, 1, {**opened})
    assert (other_number[0], other_number[4]) == (21, "SESSION_ERROR")


async def test_a_session_that_nobody_takes_up_ends(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    url = serve(most=1, resume_timeout_s=0.2)
    before = await peer(url)
    await before.open()
    before.connection.transport.abort()
    after = await peer(url)
    assert (await after.ask(1, 1, 1, {"wait_ms": 20_000}))[0] == 19
    assert tables[0].closed


@pytest.mark.parametrize("wait_ms", [0, 20_000])
async def test_a_client_that_is_gone_keeps_no_slot_from_others(
    serve: Callable[..., str],
    peer: Callable[..., Any],
    tables: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    wait_ms: int,
) -> None:
    monkeypatch.setattr(departed, "COMES_BACK_S", 0.0 if wait_ms == 0 else 0.3)
    url = serve(most=1, resume_timeout_s=3600)
    before = await peer(url)
    await before.open()
    before.connection.transport.abort()
    after = await peer(url)
    answer = await after.ask(1, 1, 1, {"wait_ms": wait_ms})
    while wait_ms == 0 and answer[0] == 21:  # the server has not seen yet that the connection broke
        answer = await after.ask(1, 1, 1, {})
    assert answer[0] == 19
    assert tables[0].closed


async def test_closing_the_socket_in_good_order_ends_its_sessions_at_once(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    url = serve(most=1)
    before = await peer(url)
    await before.open()
    await before.connection.close()
    after = await peer(url)
    assert (await after.ask(1, 1, 1, {"wait_ms": 20_000}))[0] == 19
    assert tables[0].closed


async def test_a_call_past_its_deadline_is_cancelled_and_its_slot_is_free(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(serve(most=1))
    await wire.open()
    late = await wire.ask(3, 1, 2, {"waits": True}, 50)
    assert (late[0], late[4], late[5]["reason"]) == (21, "SESSION_ERROR", "deadline")
    assert tables[0].cancelled == 1
    assert (await wire.ask(1, 2, 1, {"wait_ms": 20_000}))[0] == 19
    assert "none of number 1" in (await wire.ask(3, 1, 3, {}))[3]


async def test_a_call_is_cancelled_by_its_client(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(serve())
    await wire.open()
    await wire.send([3, 1, 2, {"waits": True}])
    assert await asyncio.to_thread(tables[0].waiting.wait, 20)
    ended = await wire.ask(7, 1, 2)
    assert (ended[0], ended[1:3], ended[4]) == (21, [1, 2], "SESSION_ERROR")
    assert tables[0].cancelled == 1


async def test_an_open_that_waits_is_cancelled_by_its_client(
    serve: Callable[..., str], peer: Callable[..., Any]
) -> None:
    wire = await peer(serve(most=1))
    await wire.open()
    await wire.send([1, 2, 1, {"wait_ms": 20_000}])
    ended = await wire.ask(7, 2, 1)
    assert (ended[1:3], ended[5]["reason"]) == ([2, 1], "cancelled")


async def test_a_reply_longer_than_the_client_takes_is_an_error_that_says_the_step_was_taken(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(serve(), limit=2000)
    await wire.open()
    answer = await wire.ask(3, 1, 2, {"size": 3000})
    assert answer[0] == 21
    assert "carried out" in answer[3]
    assert tables[0].steps == 1
    assert (await wire.ask(3, 1, 3, {"text": "short"}))[0] == 16


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("[]", 1003),
        (b"\xc1", 1002),
        (msgpack.packb({"a": 1}), 1002),
        (msgpack.packb([[3, 1]]), 1002),
        (msgpack.packb([[99, 1, 1]]), 1002),
        (msgpack.packb([[16, 1, 1, {}, 0, False]]), 1002),
        (b"\x91" * 5000, 1002),
        (msgpack.packb([[3, 1, 1, msgpack.ExtType(9, b"")]]), 1002),
    ],
)
async def test_what_breaks_the_protocol_ends_the_connection_and_no_other(
    serve: Callable[..., str], peer: Callable[..., Any], message: str | bytes, code: int
) -> None:
    url = serve()
    good, bad = await peer(url), await peer(url)
    await good.open()
    await bad.connection.send(message)
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(bad.connection.recv(), 20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
    assert (await good.ask(3, 1, 2, {"text": "well"}))[0] == 16


async def test_the_first_frame_is_a_greeting(serve: Callable[..., str]) -> None:
    address = serve().replace("http", "ws", 1) + "/ws"
    async with connect(address, subprotocols=["openenv.native.v1"]) as connection:  # type: ignore[list-item]
        await connection.recv()  # the server's own
        await connection.send(msgpack.packb([[1, 1, 1, {}]]))
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(connection.recv(), 20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1002


async def test_a_peer_that_offers_another_protocol_gets_the_openenv_wire(serve: Callable[..., str]) -> None:
    address = serve().replace("http", "ws", 1) + "/ws"
    async with connect(address, subprotocols=["something.else"]) as connection:  # type: ignore[list-item]
        assert connection.subprotocol is None
        await connection.send('{"type":"state"}')
        assert await connection.recv() == '{"type":"state","data":{"episode_id":null,"step_count":0}}'


async def test_a_client_that_does_not_read_is_not_read_either(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    wire = await peer(serve(), limit=2**26)
    await wire.open()
    reader = wire.connection.transport
    reader.pause_reading()
    sent = 0
    try:
        for call in range(2, 400):
            await asyncio.wait_for(wire.send([3, 1, call, {"size": 1_000_000, "data": bytes(1_000_000)}]), 2)
            sent += 1
    except TimeoutError:
        pass
    finally:
        reader.abort()  # a closing handshake would wait for what nobody reads
    assert sent < 300
    assert tables[0].steps < 300


async def test_a_resume_under_a_number_that_is_in_use_is_refused_and_takes_no_session_away(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any]
) -> None:
    url = serve()
    first, second = await peer(url), await peer(url)
    taken = await first.open()
    own = await second.open()
    refused = await second.ask(8, 1, 1, taken)
    assert refused[0] == 21
    assert "in use" in refused[3]
    assert (await first.ask(3, 1, 2, {"text": "a"}))[:3] == [16, 1, 2]
    assert (await second.ask(3, 1, 2, {"text": "b"}))[:3] == [16, 1, 2]
    assert await second.ask(8, 1, 3, own) == [19, 1, 3, own]
    assert (await second.ask(6, 1, 4)) == [20, 1, 4]
    assert [table.closed for table in tables] == [False, True]


async def test_a_step_that_never_heeds_its_cancellation_is_answered_all_the_same(
    serve: Callable[..., str], peer: Callable[..., Any], tables: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_life, "_AGAIN_S", 0.02)
    wire = await peer(serve(most=1))
    await wire.open()
    answer = await wire.ask(3, 1, 2, {"waits": True, "deaf": True}, 50)
    assert answer[:3] == [21, 1, 2]
    assert answer[5]["reason"] == "deadline"
    await wire.open(2)
    tables[0].let_go()
    assert (await wire.ask(3, 2, 2, {"text": "a"}))[:3] == [16, 2, 2]
    with anyio.fail_after(20):
        while not tables[0].closed:  # noqa: ASYNC110 - what is waited for happens in a thread
            await anyio.sleep(0.01)
