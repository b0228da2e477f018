"""The client on the native wire: against real servers, over lines that are cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import numpy as np
import pytest
from websockets.sync.server import ServerConnection

from openenv_trl.client import GenericEnvClient, native_session
from openenv_trl.errors import (
    ActionValidationError,
    ConfigurationError,
    ConnectionFailedError,
    DeadlineExceededError,
    EnvironmentExecutionError,
    ProtocolError,
    SessionCapacityError,
    SessionLostError,
)
from openenv_trl.server import departed

pytestmark = pytest.mark.anyio


def _connection(env: GenericEnvClient) -> Any:
    link: Any = env._session._link
    return link._connection


async def test_the_clients_of_a_loop_share_one_connection(serve: Callable[..., str], relay: Callable[..., Any]) -> None:
    async with relay(serve()) as line:
        clients = [GenericEnvClient(line.url) for _ in range(8)]
        await asyncio.gather(*(client.connect() for client in clients))
        results = await asyncio.gather(*(c.step({"text": str(i)}) for i, c in enumerate(clients)))
        assert [result.observation["text"] for result in results] == [str(i) for i in range(8)]
        assert line.connections == 1
        await asyncio.gather(*(client.close() for client in clients))


async def test_a_result_is_the_same_on_both_wires(serve: Callable[..., str]) -> None:
    url = serve()
    async with GenericEnvClient(url) as native, GenericEnvClient(url, wire="openenv") as openenv:
        results = []
        for client in (native, openenv):
            results.append([await client.reset(), await client.reset(seed=3), await client.step({"text": "a"})])
            for result in results[-1]:
                del result.observation["data"]  # bytes: the one thing that the wires tell in different ways
        assert results[0] == results[1]
        assert await native.state() == await openenv.state()
        assert await native.list_tools() == await openenv.list_tools()
        errors = []
        for client in (native, openenv):
            with pytest.raises(ActionValidationError) as error:
                await client.step({"nonsense": 1})
            errors.append((str(error.value), error.value.errors[0]["loc"]))
        assert errors[0] == errors[1]


async def test_arrays_bytes_and_what_is_no_number_arrive_as_they_are(serve: Callable[..., str]) -> None:
    async with GenericEnvClient(serve()) as env:
        result = await env.step({"screen": True, "data": b"\x00\xff"})
        screen = result.observation["screen"]
        assert isinstance(screen, np.ndarray)
        assert (screen == 7).all()
        assert screen.shape == (210, 160, 3)
        assert result.observation["data"] == b"\x00\xff"


async def test_large_replies_of_one_moment_arrive_whole(serve: Callable[..., str]) -> None:
    # More than the sockets between them hold: the server's event loop keeps what it cannot send yet.
    url = serve()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(GenericEnvClient(url)) for _ in range(8)]
        for size in (10_000, 100_000, 3_000_000):
            sizes = [size + 1_000 * number for number in range(len(clients))]
            results = await asyncio.gather(
                *(client.step({"size": each}) for client, each in zip(clients, sizes, strict=True))
            )
            assert [len(result.observation["text"]) for result in results] == sizes


async def test_errors_are_typed(serve: Callable[..., str]) -> None:
    url = serve(most=1)
    async with GenericEnvClient(url) as env:
        with pytest.raises(EnvironmentExecutionError, match="fell over"):
            await env.step({"raises": True})
        with pytest.raises(SessionCapacityError) as refused:
            await GenericEnvClient(url).connect()
        assert (refused.value.active_sessions, refused.value.max_sessions) == (1, 1)
        assert (await env.step({"text": "on"})).observation["count"] == 2


async def test_a_client_waits_for_its_slot(serve: Callable[..., str]) -> None:
    url = serve(most=1)
    first = await GenericEnvClient(url).connect()
    async with anyio.create_task_group() as tasks:
        second = GenericEnvClient(url, wait_for_slot_s=20)
        tasks.start_soon(second.connect)
        with pytest.raises(SessionCapacityError):
            await GenericEnvClient(url).connect()
        await first.close()
    assert second.is_open
    await second.close()


async def test_the_slot_is_free_when_close_returns(serve: Callable[..., str], tables: list[Any]) -> None:
    url = serve(most=1)
    for _ in range(5):
        async with GenericEnvClient(url) as env:
            await env.reset()
    assert [table.closed for table in tables] == [True] * 5


async def test_the_last_session_closes_the_connection(serve: Callable[..., str]) -> None:
    env = await GenericEnvClient(serve()).connect()
    connection = _connection(env)
    await env.close()
    assert not connection.is_open
    assert not connection._socket.is_open


async def test_a_broken_connection_is_made_again_and_each_step_is_taken_once(
    serve: Callable[..., str], relay: Callable[..., Any], tables: list[Any]
) -> None:
    async with relay(serve()) as line:
        clients = [await GenericEnvClient(line.url).connect() for _ in range(4)]
        connection = _connection(clients[0])

        async def play(env: GenericEnvClient) -> list[int]:
            return [(await env.step({"text": str(i)})).observation["count"] for i in range(300)]

        async def cut() -> None:
            for _ in range(5):
                await anyio.sleep(0.03)
                line.cut()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut)
            counts = await asyncio.gather(*(play(env) for env in clients))
        assert counts == [list(range(1, 301))] * 4
        assert connection.resumed >= 1
        assert [table.steps for table in tables] == [300] * 4
        await asyncio.gather(*(env.close() for env in clients))


async def test_a_step_that_ran_while_the_connection_broke_brings_its_result(
    serve: Callable[..., str], relay: Callable[..., Any], tables: list[Any]
) -> None:
    async with relay(serve()) as line, GenericEnvClient(line.url) as env:
        async with anyio.create_task_group() as tasks:

            async def step() -> None:
                assert (await env.step({"waits": True, "text": "at last"})).observation["text"] == "at last"

            tasks.start_soon(step)
            assert await asyncio.to_thread(tables[0].waiting.wait, 20)
            line.cut()
            while _connection(env).resumed == 0:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            tables[0].let_go()
        assert tables[0].steps == 1


async def test_a_session_that_ended_meanwhile_is_lost_and_never_begun_anew(
    serve: Callable[..., str], relay: Callable[..., Any], tables: list[Any]
) -> None:
    async with relay(serve(resume_timeout_s=0.05)) as line:
        env = await GenericEnvClient(line.url).connect()
        connection = _connection(env)
        connection._resume_s = 20.0  # it tries for longer than the server keeps it
        target = line.target
        line.lead_nowhere()
        line.cut()
        while not tables[0].closed:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        line.target = target
        with pytest.raises(SessionLostError):
            await env.step({"text": "again"})
        with pytest.raises(SessionLostError):
            await env.step({"text": "and again"})
        assert len(tables) == 1
        await env.close()


async def test_a_late_reply_is_dropped_and_counted(serve: Callable[..., str], tables: list[Any]) -> None:
    url = serve()
    async with GenericEnvClient(url) as env, GenericEnvClient(url) as other:
        connection = _connection(env)
        # Long enough for the step to begin on a busy machine: one that was given up before has nothing to cancel.
        with pytest.raises(DeadlineExceededError, match=r"No reply to step from .* within 1 s; the session is lost"):
            await env.step({"waits": True}, timeout_s=1.0)
        with pytest.raises(SessionLostError):
            await env.step({"text": "more"})
        assert (await other.step({"text": "fine"})).observation["count"] == 1
        while connection.late_replies == 0:
            await other.step({"text": "fine"})
        assert tables[0].cancelled == 1


async def test_a_cancelled_call_loses_its_session_and_no_other(serve: Callable[..., str], tables: list[Any]) -> None:
    url = serve()
    async with GenericEnvClient(url) as env, GenericEnvClient(url) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(env.step, {"waits": True})
            assert await asyncio.to_thread(tables[0].waiting.wait, 20)
            tasks.cancel_scope.cancel()
        with pytest.raises(SessionLostError, match="cancelled"):
            await env.step({"text": "more"})
        assert (await other.step({"text": "fine"})).observation["count"] == 1


async def test_what_is_too_long_is_refused_before_it_is_sent(serve: Callable[..., str], tables: list[Any]) -> None:
    async with GenericEnvClient(serve(max_message_bytes=10_000)) as env:
        with pytest.raises(ActionValidationError, match=r"bytes, and a message may have 9995"):
            await env.step({"text": "x" * 20_000})
        assert (await env.step({"text": "short"})).observation["count"] == 1


async def test_a_reply_that_is_too_long_says_that_the_step_was_taken(
    serve: Callable[..., str], tables: list[Any]
) -> None:
    async with GenericEnvClient(serve(), max_message_size_mb=0.01) as env:
        with pytest.raises(EnvironmentExecutionError, match=r"carried out.*client's max_message_size_mb"):
            await env.step({"size": 20_000})
        assert (await env.step({"text": "short"})).observation["count"] == 2


async def test_an_error_whose_text_is_too_long_costs_its_own_call_and_no_session_of_the_connection(
    serve: Callable[..., str], tables: list[Any]
) -> None:
    async with GenericEnvClient(serve(), max_message_size_mb=0.01) as env, await env.new_session() as other:
        with pytest.raises(EnvironmentExecutionError, match=r"client's max_message_size_mb"):
            await env.step({"raises": True, "size": 20_000})
        for each in (env, other):
            assert (await each.step({"text": "on"})).observation["count"] in (1, 2)


async def test_what_cannot_be_sent_is_refused_and_the_session_goes_on(serve: Callable[..., str]) -> None:
    async with GenericEnvClient(serve()) as env:
        with pytest.raises(ActionValidationError, match=r"Cannot send the step: action\.text: "):
            await env.step({"text": object()})
        with pytest.raises(ConfigurationError, match=r"Cannot send the reset: arguments\.seed: "):
            await env.reset(seed=object())
        assert (await env.step({"text": "on"})).observation["count"] == 1


@pytest.mark.parametrize("wire", ["native", "openenv"])
async def test_an_observation_that_cannot_be_sent_is_told_with_its_place(
    serve: Callable[..., str], wire: Literal["native", "openenv"], caplog: pytest.LogCaptureFixture
) -> None:
    async with GenericEnvClient(serve(), wire=wire) as env:
        await env.reset(episode_id="e-1")
        with pytest.raises(EnvironmentExecutionError, match=r"cannot be sent: observation\.screen\.of\[0\]: an object"):
            await env.step({"odd": True})
    (record,) = [each for each in caplog.records if "cannot be sent" in each.getMessage()]
    told = record.__dict__
    assert (told["episode_id"], told["call"]) == ("e-1", "step")
    assert told["session_id"]
    assert told["transport"] == ("native" if wire == "native" else "ws")


async def test_a_server_of_the_openenv_wire_is_spoken_to_as_it_understands(scripted: Callable[..., str]) -> None:
    def play(connection: ServerConnection) -> None:
        connection.recv()
        connection.send('{"type":"error","data":{"message":"what is mcp?","code":"UNKNOWN_TYPE"}}')
        connection.recv()
        connection.send('{"type":"observation","data":{"observation":{"text":"hi"},"reward":1.0,"done":false}}')
        connection.recv()

    url = scripted(play)
    async with GenericEnvClient(url) as env:
        assert (await env.reset()).observation == {"text": "hi"}
    with pytest.raises(ConfigurationError, match="does not speak the native wire"):
        await GenericEnvClient(url, wire="native").connect()


async def test_a_server_that_breaks_the_native_wire_is_told_of(scripted: Callable[..., str]) -> None:
    def play(connection: ServerConnection) -> None:
        connection.send(b"\x91\x91\x63")
        connection.recv()

    url = scripted(play, subprotocols=["openenv.native.v1"])
    with pytest.raises((ConnectionFailedError, ProtocolError), match="greeting"):
        await GenericEnvClient(url).connect()


async def test_a_killed_server_is_told_of_soon(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from openenv_trl import Action, Environment, Observation, State, create_app\n"
        "class Game(Environment):\n"
        "    def reset(self, seed=None, episode_id=None): return Observation()\n"
        "    def step(self, action, timeout_s=None): return Observation()\n"
        "    @property\n"
        "    def state(self): return State()\n"
        "app = create_app(Game, Action, Observation)\n"
    )
    with subprocess.Popen(  # noqa: ASYNC220 - the test's own end of it is short
        [sys.executable, "-m", "openenv_trl.server", "app:app", "--port", "0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    ) as process:
        assert process.stderr is not None
        try:
            url = next(line for line in process.stderr if "Serving on" in line).split()[-1]
            env = await GenericEnvClient(url).connect()
            await env.reset()
            process.send_signal(signal.SIGKILL)
            process.wait()
            with anyio.fail_after(60), pytest.raises(SessionLostError):
                await env.step({})
            assert not env.is_open
            with pytest.raises(ConnectionFailedError):
                await GenericEnvClient(url).connect()
            await env.close()
        finally:
            process.kill()


def test_blocking_clients_share_a_connection_too(serve: Callable[..., str]) -> None:
    url = serve()
    with GenericEnvClient(url).sync() as first, GenericEnvClient(url).sync() as second:
        assert first.step({"text": "a"}).observation["text"] == "a"
        assert second.step({"text": "b"}).observation["text"] == "b"
        assert _connection(first.async_client) is _connection(second.async_client)


async def test_the_openenv_wire_has_the_same_limits_with_the_same_words(serve: Callable[..., str]) -> None:
    url = serve(max_message_bytes=10_000)
    async with GenericEnvClient(url, wire="openenv", max_message_size_mb=0.01) as env:
        with pytest.raises(ActionValidationError, match="and a message may have 10485"):
            await env.step({"text": "x" * 20_000})
        with pytest.raises(EnvironmentExecutionError, match="carried out, but its result cannot be sent"):
            await env.step({"size": 20_000})
        assert (await env.step({"text": "short"})).observation["count"] == 2


async def test_a_deadline_of_the_servers_own_is_told_as_one_on_both_wires(
    serve: Callable[..., str], tables: list[Any]
) -> None:
    url = serve(step_timeout_s=0.1)
    for wire in ("native", "openenv"):
        async with GenericEnvClient(url, wire=wire) as env:  # type: ignore[arg-type]
            with pytest.raises(DeadlineExceededError, match="deadline"):
                await env.step({"waits": True})
            with pytest.raises(SessionLostError):
                await env.step({"text": "more"})
    assert [table.cancelled for table in tables] == [1, 1]


async def test_closing_a_client_ends_the_step_that_it_waits_for(
    serve: Callable[..., str], tables: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_session, "_CLOSE_S", 600.0)  # it is the step's end that ends the waiting
    env = await GenericEnvClient(serve(most=1)).connect()
    async with anyio.create_task_group() as tasks:

        async def step() -> None:
            with pytest.raises(SessionLostError):
                await env.step({"waits": True})

        tasks.start_soon(step)
        assert await asyncio.to_thread(tables[0].waiting.wait, 20)
        with anyio.fail_after(60):
            await env.close()
    assert tables[0].cancelled == 1
    assert tables[0].closed


@pytest.mark.parametrize("ending", ["sync", "async", "of the loop"])
def test_a_program_that_ends_without_closing_keeps_no_slot(
    serve: Callable[..., str], tables: list[Any], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that may come back would keep its slot for longer than the next client waits.
    monkeypatch.setattr(departed, "COMES_BACK_S", 3600.0)
    url = serve(most=2, resume_timeout_s=3600)
    opening = {
        "sync": "for _ in range(2): GenericEnvClient(url).sync().connect()",
        "async": "async def main():\n    for _ in range(2): kept.append(await GenericEnvClient(url).connect())\n"
        "asyncio.run(main())",
        "of the loop": "async def main():\n    kept.append(await GenericEnvClient(url).connect())\n"
        "asyncio.run(main())\nasyncio.run(main())",
    }[ending]
    program = f"import asyncio\nfrom openenv_trl import GenericEnvClient\nurl, kept = {url!r}, []\n{opening}\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    with GenericEnvClient(url, wait_for_slot_s=30.0).sync() as env:
        assert env.reset().observation["count"] == 0


async def test_a_session_that_its_server_ends_says_why_on_the_next_call(serve: Callable[..., str]) -> None:
    url = serve(idle_timeout_s=0.1)
    async with GenericEnvClient(url) as env, GenericEnvClient(url) as other:
        with anyio.fail_after(60):
            while env.is_open:
                with contextlib.suppress(SessionLostError):  # after a pause of the machine it is as idle as the first
                    await other.step({"text": "still there"})
                await anyio.sleep(0.01)
        with pytest.raises(SessionLostError, match=r"was lost \(no call came for"):
            await env.step({"text": "too late"})


async def test_a_client_says_what_it_is(serve: Callable[..., str]) -> None:
    url = serve()
    client = GenericEnvClient(url)
    assert (client.wire, client.session_id) == (None, None)
    assert repr(client) == f"<GenericEnvClient of {url}: not connected>"
    async with client as env, GenericEnvClient(url, wire="openenv") as other:
        assert repr(env) == f"<GenericEnvClient of {url}: open, native wire>"
        assert env.session_id
        assert (other.wire, other.session_id) == ("openenv", None)
    with pytest.raises(ConfigurationError, match="'foo' is unknown"):
        await GenericEnvClient(url, wire="foo").connect()  # type: ignore[arg-type]
