"""Server processes are killed in the middle of things: what can be played is played, and what was lost is told."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import pytest

from openenv_trl.rollout import EndReason, Trajectory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HIT = '<tool_call>{"name": "hit", "arguments": {}}</tool_call>'


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


async def test_a_server_killed_in_the_middle_of_a_group_leaves_its_episodes_to_the_other(
    serve: Any, bell: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    servers = await serve(replicas=2)
    async with engine_over(servers.base_urls) as engine:
        played: list[Trajectory] = []

        async def play() -> None:
            played.extend(await engine.run(tasks(*["ring"] * 8, group="g"), say(HIT)))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(play)
                ringing = await bell.several(8)  # all are in their second step
                victim = ringing[0].pid
                lost = sum(each.pid == victim for each in ringing)
                kill(victim)
                for each in ringing:
                    await each.answer()
                for each in await bell.several(lost):  # the lost ones again, on the other server
                    assert each.pid != victim
                    await each.answer()
    assert [t.end_reason for t in played] == [EndReason.DONE] * 8
    assert [t.reward for t in played] == [3.0] * 8
    assert sum(t.attempts - 1 for t in played) == lost > 0
    assert {failure.split(":")[0] for t in played for failure in t.failures} == {"session_lost"}
    assert engine.metrics["retries"] == lost


async def test_a_server_that_is_started_again_takes_its_episodes_over(
    serve: Any, bell: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    servers = await serve(max_restarts=1)
    async with engine_over(servers.base_urls, server_patience_s=30.0, connect_timeout_s=30.0) as engine:
        played: list[Trajectory] = []

        async def play() -> None:
            played.extend(await engine.run(tasks("ring", "ring", "ring"), say(HIT)))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(play)
                ringing = await bell.several(3)
                kill(ringing[0].pid)
                for each in await bell.several(3):
                    assert each.pid != ringing[0].pid
                    await each.answer()
    assert [t.reward for t in played] == [3.0] * 3
    assert all(t.attempts > 1 for t in played)


async def test_when_every_server_is_gone_the_run_ends_with_what_was_played_and_says_what_was_lost(
    serve: Any, bell: Any, engine_over: Any, say: Any, tasks: Any
) -> None:
    servers = await serve(replicas=2)
    async with engine_over(servers.base_urls, server_patience_s=1.0) as engine:
        played: list[Trajectory] = []
        two_ended = anyio.Event()

        def note(trajectory: Trajectory) -> None:
            ended.append(trajectory)
            if len(ended) == 2:
                two_ended.set()

        ended: list[Trajectory] = []

        async def play() -> None:
            faults = tasks("", "ring", "", "ring", "ring", "ring", group="g")
            played.extend(await engine.run(faults, say(HIT), on_trajectory=note))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(play)
                await bell.several(4)
                await two_ended.wait()
                for pid in servers.server_pids:
                    kill(pid)
    assert [t.reward for t in played] == [3.0, None, 3.0, None, None, None]
    lost = [t for t in played if t.end_reason.is_failure]
    assert {t.end_reason for t in lost} <= {EndReason.CONNECT_FAILED, EndReason.SESSION_LOST}
    report = engine.last_report
    assert (report.kept, len(report.dropped)) == (2, 4)
    assert "4 of 6 episodes were dropped" in str(report)
    assert "Dropped by group: g 4/6." in str(report)
