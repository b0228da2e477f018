"""A server that stops in the middle of a step is hedged or given up; the user's Ctrl-C stops all and frees all."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from openenv_trl.rollout import EndReason, HedgeSlowCalls, RolloutStrategies, Trajectory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'
HERE = Path(__file__).parent


async def frozen(
    strategies: RolloutStrategies, serve: Any, bell: Any, engine_over: Any, say: Any, tasks: Any, step_timeout_s: float
) -> tuple[list[Trajectory], Any]:
    """Play while one of two servers is stopped in the middle of everybody's second step."""
    servers = await serve("repeatable_table", replicas=2)
    stopped: set[int] = set()
    try:
        async with engine_over(servers.base_urls, strategies, step_timeout_s=step_timeout_s) as engine:
            played: list[Trajectory] = []

            async def play() -> None:
                played.extend(await engine.run(tasks(*["ring"] * 4), say(HIT)))
                again.cancel()

            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    again = anyio.CancelScope()
                    group.start_soon(play)
                    ringing = await bell.several(4)
                    victim = ringing[0].pid
                    os.kill(victim, signal.SIGSTOP)
                    stopped.add(victim)
                    for each in ringing:
                        await each.answer()
                    with again:
                        while True:  # those of the stopped server once more, in the other one
                            await (await bell.next()).answer()
            lost = sum(each.pid == victim for each in ringing)
            assert lost > 0
            return played, (engine.metrics, lost)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


async def test_a_step_in_a_server_that_stands_still_is_answered_by_another_server(
    serve: Any, bell: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    # That the class declares itself REPEATABLE is asked of the server, over HTTP.
    strategies = RolloutStrategies(straggler=HedgeSlowCalls(after_s=2.0, max_hedges=3))
    played, (metrics, lost) = await frozen(strategies, serve, bell, engine_over, say, tasks, 30.0)
    assert [t.reward for t in played] == [3.0] * 4
    assert [t.attempts for t in played] == [1] * 4  # no episode was begun again
    assert metrics["hedges_won"] >= lost


async def test_without_hedging_it_costs_the_deadline_and_an_attempt(
    serve: Any, bell: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    played, (_, lost) = await frozen(RolloutStrategies(), serve, bell, engine_over, say, tasks, 5.0)
    assert {t.end_reason for t in played} <= {EndReason.DONE, EndReason.CONNECT_FAILED, EndReason.STEP_TIMEOUT}
    assert sum(t.attempts > 1 for t in played) >= lost


async def test_environments_that_declare_nothing_are_not_hedged_over_a_real_server(
    serve: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    from openenv_trl.errors import ConfigurationError

    servers = await serve("table")
    async with engine_over(servers.base_urls, RolloutStrategies(straggler=HedgeSlowCalls())) as engine:
        with pytest.raises(ConfigurationError, match="REPEATABLE = True"):
            await engine.run(tasks(""), say(HIT))


@pytest.mark.parametrize("loop_in", ["main", "background"])
async def test_an_interrupt_stops_the_run_at_once_and_frees_the_sessions(serve: Any, bell: Any, loop_in: str) -> None:
    servers = await serve()
    (url,) = servers.base_urls
    program = [sys.executable, str(HERE / "play.py"), url, loop_in]
    with anyio.fail_after(110):
        async with await anyio.open_process(program, stdout=None, stderr=None) as process:
            ringing = await bell.several(4)  # all are in a step, and nobody answers
            process.send_signal(signal.SIGINT)
            with anyio.fail_after(30):
                await process.wait()
            assert process.returncode not in (0, None)
        for each in ringing:
            await each.answer()
        while (await anyio.to_thread.run_sync(active_sessions, url)) > 0:
            await anyio.lowlevel.checkpoint()


def active_sessions(url: str) -> int:
    with urllib.request.urlopen(f"{url}/capacity", timeout=60) as answer:
        return json.load(answer)["active_sessions"]
