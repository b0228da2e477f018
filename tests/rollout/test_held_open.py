"""What is held open is entered and left by one task, whoever opens and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from openenv_trl.rollout.held_open import HeldOpen

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def group_of_its_own(said: list[str], fails: str = "") -> AsyncGenerator[str]:
    entering = asyncio.current_task()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        if fails == "entry":
            raise ValueError("no entry")
        if fails == "hangs":
            said.append("entering")
            await anyio.sleep_forever()
        try:
            yield "held"
        finally:
            said.append("left by the same task" if asyncio.current_task() is entering else "left by another")
            group.cancel_scope.cancel()
    if fails == "exit":
        raise ValueError("no exit")


async def test_one_task_opens_it_and_another_closes_it() -> None:
    said: list[str] = []
    held = HeldOpen(group_of_its_own(said))
    opened: list[str] = []

    async def open_it() -> None:
        opened.append(await held.__aenter__())

    async with anyio.create_task_group() as group:
        group.start_soon(open_it)
    assert (opened, said) == (["held"], [])
    async with anyio.create_task_group() as group:
        group.start_soon(held.__aexit__, None, None, None)
    assert said == ["left by the same task"]


async def test_the_cancelling_of_who_opened_it_later_on_leaves_it_open() -> None:
    said: list[str] = []
    held = HeldOpen(group_of_its_own(said))
    with anyio.CancelScope() as scope:
        await held.__aenter__()
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    assert said == []
    await held.__aexit__(None, None, None)
    assert said == ["left by the same task"]


async def test_a_cancelled_entry_leaves_nothing() -> None:
    said: list[str] = []
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(HeldOpen(group_of_its_own(said, "hangs")).__aenter__)
            while not said:
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert [task for task in asyncio.all_tasks() if "_hold" in repr(task)] == []


@pytest.mark.parametrize("where", ["entry", "exit"])
async def test_errors_of_entry_and_exit_come_to_who_waits(where: str) -> None:
    held = HeldOpen(group_of_its_own([], where))

    async def open_and_close() -> None:
        await held.__aenter__()
        await held.__aexit__(None, None, None)

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - an error of the exit is in its tasks' group
        await open_and_close()
    assert f"no {where}" in repr(caught.value)
