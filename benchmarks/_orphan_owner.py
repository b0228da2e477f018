"""The process that `orphans.py` kills: it owns servers, and says where in its life it is.

    python benchmarks/_orphan_owner.py PLAN     (JSON: the provider's settings, and what else the round does)

Its words: ``alive OWNER_ID``, ``starting``, ``ready``, ``serving``, ``stopping``, ``stopped``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
import anyio.abc

from openenv_trl.client import GenericEnvClient
from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.ownership import neighbours
from openenv_trl.providers.specs import make_provider

SESSIONS = 4


def say(*words: str) -> None:
    os.write(1, f"{' '.join(words)}\n".encode())


async def own(plan: dict[str, Any]) -> None:
    """Live as planned; the killer decides how long."""
    if not plan["cleans_up"]:
        neighbours.FIRST_S = float("inf")
    say("alive", this_owner().id)
    where = {} if plan["docker_host"] is None else {"docker_host": plan["docker_host"]}
    provider = make_provider(plan["spec"], **where)
    say("starting")
    endpoint = await provider.start()
    say("ready")
    if plan["phase"] == "stopping":
        say("stopping")
        await provider.stop()
        say("stopped")
    elif plan["phase"] == "serving" and plan["plays"]:
        async with anyio.create_task_group() as tasks:
            for number in range(SESSIONS):
                await tasks.start(play, endpoint.base_urls[number % len(endpoint.base_urls)])
            say("serving")
    elif plan["phase"] == "serving":
        say("serving")
    await anyio.sleep_forever()


async def play(url: str, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Plays for ever; has started once a step was answered."""
    started = False
    async with GenericEnvClient(url) as client:
        while True:
            await client.reset()
            await client.step({"move": "stand"})
            if not started:
                started = True
                task_status.started()


if __name__ == "__main__":
    anyio.run(own, json.loads(sys.argv[1]))
